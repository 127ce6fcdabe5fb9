"""Adaptive eager's compiling side: what turns the windows that the core finds into programs.

The core (``csrc/adaptive``) recognises stretches of ops that come again and again. ``service`` takes
each from it, has ``worker``, a process of its own, fuse and compile it, and hands the program back.
"""
