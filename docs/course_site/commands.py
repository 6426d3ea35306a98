"""The reference of commands and settings, from what `--help` prints, and from the settings classes."""

import inspect
from collections.abc import Iterable
from typing import Any

from course_lib.command_line import command_table
from course_lib.command_line.command_table import COMMANDS, PARTS
from course_lib.command_line.from_options import settings_class
from course_lib.language.words import SOURCE
from course_lib.settings import config, profiles
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from course_authors.pages import anchor
from course_site import page

# Argument of a page's `commands` directive → the parts of the course whose commands it lists.
PAGES = {
    "corpus": ("Corpus",),
    "world": ("A small world",),
    "japanese": ("Words",),
    "subword": ("Tokenizers",),
    "pretrain": ("Language models",),
    "gptsan": ("GPTSAN",),
    "prefix": ("Prefix tuning",),
    "serving": ("Serving",),
    "scale": ("Corpus work on a cluster",),
    "course": ("The course itself", "For authors of the course"),
}


def page_of(words: str) -> str:
    """Return the page that lists a command, such as docs/reference/commands-corpus."""
    part = next(part for part, commands in PARTS.items() if words in commands)
    name = next(name for name, parts in PAGES.items() if part in parts)
    return f"docs/reference/commands-{name}"


class Commands(SphinxDirective):
    """The commands of one page: usage, arguments, options and settings of each, as `--help` prints them."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a section per command."""
        chosen = [words for words in COMMANDS if page_of(words) == f"docs/reference/commands-{self.arguments[0]}"]
        if not chosen:
            raise self.error(f"no commands for {self.arguments[0]!r}; allowed: {', '.join(PAGES)}")
        self.env.note_dependency(inspect.getfile(command_table))
        return [self._command(words) for words in chosen]

    def _command(self, words: str) -> nodes.section:
        function = COMMANDS[words].function()
        settings = settings_class(function)
        self.env.note_dependency(inspect.getfile(function))
        command = _find(words)
        context = command.context_class(command, info_name=f"course {words}")
        title = f"course {words}"
        built = page.section(self, title, [title])
        built += [page.paragraph(" ".join(part.split())) for part in (command.help or "").split("\n\n")]
        built += page.block(f"{title} {' '.join(command.collect_usage_pieces(context))}", "console")
        records = [(parameter, parameter.get_help_record(context)) for parameter in command.get_params(context)]
        for kind in ("argument", "option"):
            of_kind = [record for parameter, record in records if record and parameter.param_type_name == kind]
            if of_kind:
                built += page.table((kind, "what"), [(page.code(name), help_text) for name, help_text in of_kind])
        if settings:
            built += page.paragraph("Settings (in the YAML of ", page.code("-c"), ", or by ", page.code("--set"), "):")
            built += _settings(settings, anchor(title))
        return built


class CommandList(SphinxDirective):
    """A table of all commands, each linked to its section."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        rows = []
        for words, command in COMMANDS.items():
            name = page.document(page_of(words), anchor(f"course {words}"), page.code(f"course {words}"))
            rows.append((name, command.help))
        return [page.table(("command", "what it does"), rows)]


class ProfileSections(SphinxDirective):
    """The sections that a profile may have, with the settings of each and what the bundled profiles set."""

    def run(self) -> list[nodes.Node]:
        """Return a section per section of a profile."""
        return [self._section(name, section.cls) for name, section in config.known_sections().items()]

    def _section(self, name: str, settings: type) -> nodes.section:
        self.env.note_dependency(inspect.getfile(settings))
        built = page.section(self, name, [name])
        built += [page.paragraph(" ".join(part.split())) for part in (inspect.getdoc(settings) or "").split("\n\n")]
        users = [words for words, command in COMMANDS.items() if settings_class(command.function()) is settings]
        if users:
            links = [
                page.document(page_of(words), anchor(f"course {words}"), page.code(f"course {words}"))
                for words in users
            ]
            parts = [part for each in links for part in (nodes.Text(", "), each)][1:]
            built += page.paragraph("Keys, defaults and meaning: as for ", *parts, ".")
        else:
            built += _settings(settings, anchor(name))
        files = {profile: profiles.profile_file(profile) for profile in profiles.BUNDLED}
        values = {profile: config.sections(file).get(name, {}) for profile, file in files.items()}
        flat = {profile: config.flat(nested) for profile, nested in values.items()}
        keys = list(dict.fromkeys(key for of_profile in flat.values() for key in of_profile))
        if keys:
            rows = [(page.code(key), *(_shown(of_profile, key) for of_profile in flat.values())) for key in keys]
            built += page.paragraph("What the bundled profiles set; an empty cell is the default:")
            built += page.table(("key", *flat), rows)
        return built


def _shown(values: dict[str, Any], key: str) -> list[nodes.Node]:
    return [page.code(str(values[key]))] if key in values else []


def _find(words: str) -> Any:
    """Return the loaded command: click's, or that of the copy of click inside Typer."""
    command: Any = command_table.app
    for word in words.split():
        command = command.commands[word]
    return command.load()


def _settings(cls: type, prefix: str) -> nodes.definition_list:
    """Return a list of a class's settings. Each key has the id PREFIX-KEY and an entry in the index."""
    built = nodes.definition_list(classes=["settings"])
    for setting in config.describe(cls):
        target = f"{prefix}-{setting.key}".replace(".", "-")
        term = nodes.term("", "", *page.index([setting.key], target), page.code(setting.key), ids=[target])
        values = page.paragraph(f"{setting.kind}, default ", page.code(setting.default))
        values["classes"].append("default")
        built += nodes.definition_list_item("", term, nodes.definition("", page.paragraph(setting.help), values))
    return built


def _all_listed(_app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Fail if a command has no page in the English edition."""
    pages = set(map(page_of, COMMANDS))
    if env.config.language == SOURCE and (missing := pages - env.found_docs):
        raise ExtensionError(f"commands without a page: {', '.join(sorted(missing))}")
    return ()


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("commands", Commands)
    app.add_directive("command-list", CommandList)
    app.add_directive("profile-sections", ProfileSections)
    app.connect("env-updated", _all_listed)
