"""Pose data: images with boxes, and the points in each box."""

from nas.tasks.pose.data.load import load_pose
from nas.tasks.pose.data.skeleton import Skeleton
from nas.tasks.pose.data.values import PoseData, Poses, PoseSplit

__all__ = ["PoseData", "PoseSplit", "Poses", "Skeleton", "load_pose"]
