"""Whether ``products = "fp8"`` can be had: checked before anything is written, and again when the first step is taken."""

from __future__ import annotations

import torch

from anaphora.errors import SettingsError
from anaphora.models.language import Language
from anaphora.models.language_passes import why_not_eight, why_not_eight_of, why_not_eight_on
from anaphora.settings.language import LanguageSettings
from anaphora.settings.own import Part
from anaphora.tasks.language.build import build_language
from anaphora.training.precision import choose_precision


def refuse_eight_here(settings: LanguageSettings, device: torch.device) -> None:
    """Raise a `SettingsError` where ``products`` is fp8 and this machine or other settings rule that out, whatever the text."""
    if settings.products != "fp8":
        return
    if isinstance(settings.loss, Part):
        raise _own_loss()
    why = why_not_eight_on(device)
    if why is None and isinstance(settings.model, Part):
        why = "it is for the library's own Transformer"
    why = why or _compiled(settings)
    if why is None and choose_precision(settings.precision, device) != "bf16":
        why = _PRECISION
    if why is not None:
        raise _refused(why)


def refuse_eight_for(settings: LanguageSettings) -> None:
    """Raise a `SettingsError` where ``products`` is fp8 and a model of these settings, which are complete now, has no such products."""
    if settings.products != "fp8":
        return
    with torch.device("meta"):
        model = build_language(settings, 64)
    why = why_not_eight_of(model)
    if why is not None:
        raise _refused(why)


def refuse_eight(model: Language, settings: LanguageSettings, device: torch.device) -> None:
    """Raise a `SettingsError` where a step of ``model`` cannot have eight bits."""
    why = why_not_eight(model, device) or _compiled(settings)
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    if why is None and not autocast:
        why = _PRECISION
    if why is not None:
        raise _refused(why)


def refuse_own_loss(settings: LanguageSettings) -> None:
    """Raise a `SettingsError` for eight bits where another loss than the library's is computed."""
    if settings.products == "fp8":
        raise _own_loss()


_PRECISION = 'it needs precision = "bf16"'


def _compiled(settings: LanguageSettings) -> str | None:
    return 'it needs compile = "auto"' if settings.compile == "off" else None


def _refused(why: str) -> SettingsError:
    return SettingsError([f'products = "fp8" cannot be had here: {why}; leave products out.'])


def _own_loss() -> SettingsError:
    return SettingsError(['products = "fp8" takes the library\'s own loss; leave products or loss out.'])
