"""Imported by the fork server of the publishers before it forks: the plan is loaded then, once for all of them."""

from tests.fault_injection.publishing_process import load_plan

load_plan()
