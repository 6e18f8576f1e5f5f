"""Where named configs are found: the user's own folders first, then the ones shipped here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel

from configs.checkout import ROOT
from configs.files.document import ConfigError, Document, accepted, read_document, shown_path
from configs.files.parse import parse

Folder = Literal["models", "shapes", "techniques", "replays", "precisions", "engines", "gpus", "suites", "sweeps"]
"""The sub-folders of `configs/`, each holding one kind of file."""

SHIPPED_ROOT = ROOT / "configs"
"""The folder of the configs that ship with specsweep."""

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True)
class Library:
    """The folders in which names are looked up, in order; the first one that has the name wins.

    It remembers what it has read: a matrix of a thousand rows reads each file once.
    """

    roots: tuple[Path, ...] = (SHIPPED_ROOT,)
    _files: dict[Folder, dict[str, Path]] = field(default_factory=dict, compare=False, repr=False)
    _loaded: dict[tuple[Folder, str], BaseModel] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def beside(cls, folder: Path | None) -> Library:
        """The shipped library, preceded by a user's own `models/`, `suites/` ... in `folder`."""
        return cls(roots=(folder, SHIPPED_ROOT)) if folder is not None else cls()

    def files(self, folder: Folder) -> dict[str, Path]:
        """Every name of one kind and its file, sorted by name."""
        if folder not in self._files:
            found: dict[str, Path] = {}
            for root in self.roots:
                for path in sorted((root / folder).glob("*.y*ml")):
                    found.setdefault(path.stem, path)
            self._files[folder] = dict(sorted(found.items()))
        return self._files[folder]

    def document(self, folder: Folder, name: str) -> Document:
        """Read the file that has a name.

        Raises:
            ConfigError: No file has the name, or it can't be read.
        """
        files = self.files(folder)
        if name not in files:
            problem = f"no file for {name!r}; {accepted(name, list(files))}"
            raise ConfigError(shown_path(self.roots[0] / folder), "", problem)
        return read_document(files[name])

    def load(self, folder: Folder, name: str, model: type[_M]) -> _M:
        """Read the file of a name into its frozen model.

        Raises:
            ConfigError: No file has the name, or it doesn't hold what `model` asks for.
        """
        loaded = self._loaded.get((folder, name))
        if not isinstance(loaded, model):
            loaded = self._loaded[folder, name] = parse(self.document(folder, name), model, stem=name)
        return loaded
