"""Which lines of the product a call has run, and in which order: pairs of lines, as AFL counts edges."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import murmurate

PRODUCT = str(Path(murmurate.__file__).parent)


class EdgeTracer:
    """Traces calls with `sys.settrace`, in files below one of the `roots` alone: everything else runs at full speed."""

    def __init__(self, roots: tuple[str, ...] = (PRODUCT,)) -> None:
        self._roots = roots
        self._traced: dict[CodeType, bool] = {}
        self.edges: set[tuple[CodeType, int, int]] = set()

    def run(self, call: Callable[[], object]) -> set[tuple[CodeType, int, int]]:
        """Run a call. Return the edges that it took; they are in `edges` even if it raises."""
        self.edges = set()
        before = sys.gettrace()
        threading.settrace(self._trace_call)  # of threads that begin in this call; a pool keeps them
        sys.settrace(self._trace_call)
        try:
            call()
        finally:
            sys.settrace(before)
            threading.settrace(None)
        return self.edges

    def _trace_call(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        traced = self._traced.get(code)
        if traced is None:
            traced = self._traced[code] = code.co_filename.startswith(self._roots)
        return self._line_tracer(code, frame.f_lineno) if traced else None

    def _line_tracer(self, code: CodeType, first: int) -> Callable[..., Any]:
        add, last = self.edges.add, first

        def trace_line(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return trace_line

        return trace_line
