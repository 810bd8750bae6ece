"""Damaged and hostile files, made by number, and the product's readers that they are given to."""
