"""The neuron config of a draft model, derived from its target's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["draft_config"]


def draft_config(target: Mapping[str, Any], *, overrides: Mapping[str, Any] = {}) -> dict[str, Any]:
    """What a draft is compiled with: the target's keywords, less what only the target does.

    As NxDI's inference_demo.py and vLLM's loader derive it: a draft proposes one token at a
    time, so its own speculation length is 0, except EAGLE's, which shares the target's loop and
    runs without sequence parallelism.

    Args:
        target: effective NxDI keywords of the target, nested configs as plain dicts.
        overrides: keywords of the draft's own, applied last.
    """
    draft = dict(target)
    draft["enable_fused_speculation"] = False
    if "trace_tokengen_model" in target:  # later releases infer it, and know it no more
        draft["trace_tokengen_model"] = True
    if target.get("enable_eagle_speculation"):
        draft["is_eagle_draft"] = True
        draft["sequence_parallel_enabled"] = False
    else:
        draft["speculation_length"] = 0
    kept = draft.pop("draft_model_modules_to_not_convert", None)
    if kept is not None:
        draft["modules_to_not_convert"] = kept
    return {**draft, **overrides}
