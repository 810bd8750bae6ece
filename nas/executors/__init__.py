"""Executors of evaluations: `local` worker processes on this machine, or a Ray cluster."""

from nas.executors.base import Evaluation, Failure, Finished, Outcome
from nas.executors.executor import Executor, check_choice, executor_for
from nas.executors.journal import Journal

__all__ = ["Evaluation", "Executor", "Failure", "Finished", "Journal", "Outcome", "check_choice", "executor_for"]
