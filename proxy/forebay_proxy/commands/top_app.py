"""`forebay top` in a terminal: a table each for brokers, topics and clients, asked for anew each second.

In: a running Forebay's admin endpoint. Out: the terminal, until `q`. Where Forebay does not answer, the last numbers
stay and the first line says so; it is asked again.
"""

from __future__ import annotations

from typing import ClassVar, Final

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError
from forebay_proxy.commands.top_view import KINDS, Look, attention, cells, look, sentence
from forebay_proxy.logs import visible

EVERY_S: Final = 1.0
_COLOURS: Final = {"critical": "bold red", "warning": "yellow"}


class TopApp(App[None]):
    """Only the table that is seen is asked for, and never twice at once."""

    TITLE = "forebay top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    TabbedContent, ContentSwitcher, TabPane { height: 1fr; }
    TabPane { padding: 0; }
    #sentence { text-style: bold; height: auto; }
    #attention { height: auto; }
    #words { display: none; }
    #words.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("b", "show('brokers')", "Brokers"),
        ("t", "show('topics')", "Topics"),
        ("c", "show('clients')", "Clients"),
        ("s", "sort", "Sort by the next column"),
        ("r", "reverse", "Reverse"),
        ("slash", "find", "Find"),
        ("escape", "find_nothing", "All"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, endpoint: AdminEndpoint) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._sorts = {kind: each.sort for kind, each in KINDS.items()}
        self._asking = False
        self._again = False

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static("Looking …", id="sentence")
        yield Static("", id="attention")
        yield Input(placeholder="names that hold …", id="words")
        with TabbedContent(initial="brokers"):
            for kind in KINDS:
                with TabPane(kind.capitalize(), id=kind):
                    yield DataTable(id=f"{kind}-table", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """It is in the terminal."""
        self._tables()[0].focus()
        self.set_interval(EVERY_S, self.ask)
        self.ask()

    def ask(self) -> None:
        """Ask for what is seen; where an answer is awaited, once more behind it."""
        if self._asking:
            self._again = True
            return
        self._asking = True
        kind = self._kind()
        self._ask({kind: self._sorts[kind]}, self.query_one("#words", Input).value)

    @work(thread=True)
    def _ask(self, sorts: dict[str, str], words: str) -> None:
        told: Look | AdminError
        try:
            told = look(self._endpoint, sorts, words)
        except AdminError as error:
            told = error
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._show, told)

    def _show(self, told: Look | AdminError) -> None:
        self._asking = False
        if not self.query("#sentence"):
            return  # it was told to end meanwhile
        if isinstance(told, AdminError):
            self.query_one("#sentence", Static).update(Text(visible(str(told)), "bold red"))
        else:
            self.query_one("#sentence", Static).update(Text(sentence(told)))
            said = [Text(visible(text), _COLOURS.get(severity, "")) for severity, text in attention(told)]
            self.query_one("#attention", Static).update(Text("\n").join(said))
            for kind in told.rows:
                self._fill(kind, told)
        if self._again:
            self._again = False
            self.ask()

    def _fill(self, kind: str, told: Look) -> None:
        """The row under the cursor stays under it."""
        table = self.query_one(f"#{kind}-table", DataTable)
        named = KINDS[kind].name
        before = list(table.rows)
        at = before[table.cursor_row].value if before and table.cursor_row < len(before) else None
        sort = self._sorts[kind]
        table.clear(columns=True)
        for column in KINDS[kind].columns:
            mark = {column.key: " ▲", f"-{column.key}": " ▼"}.get(sort, "") if column.key else ""
            title = f"{column.title}{mark or '  '}"
            table.add_column(Text(title, justify="right" if column.number else "left"))
        for row in told.rows[kind]:
            texts = zip(KINDS[kind].columns, cells(kind, row), strict=True)
            shown = [Text(text, justify="right" if column.number else "left") for column, text in texts]
            table.add_row(*shown, key=named(row))
        more = told.found[kind] - len(told.rows[kind])
        table.border_subtitle = f"and {more:,} more" if more else ""
        keys = [key.value for key in table.rows]
        if at in keys:
            table.move_cursor(row=keys.index(at))

    def _kind(self) -> str:
        return self.query_one(TabbedContent).active

    def _tables(self) -> list[DataTable[Text]]:
        return list(self.query(DataTable))

    # Keys

    def action_show(self, kind: str) -> None:
        """Show that table."""
        self.query_one(TabbedContent).active = kind

    @on(TabbedContent.TabActivated)
    def _another_table(self) -> None:
        self.query_one(f"#{self._kind()}-table", DataTable).focus()
        self.ask()

    def action_sort(self) -> None:
        """Sort by the next column: numbers the greatest first."""
        kind = self._kind()
        sortable = [column for column in KINDS[kind].columns if column.key]
        names = [column.key for column in sortable]
        column = sortable[(names.index(self._sorts[kind].removeprefix("-")) + 1) % len(names)]
        self._sorts[kind] = f"-{column.key}" if column.number and column.key != "node" else column.key
        self.ask()

    def action_reverse(self) -> None:
        """The same column, the other way round."""
        kind = self._kind()
        sort = self._sorts[kind]
        self._sorts[kind] = sort.removeprefix("-") if sort.startswith("-") else f"-{sort}"
        self.ask()

    def action_find(self) -> None:
        """Show only what has a text in its name."""
        words = self.query_one("#words", Input)
        words.add_class("shown")
        words.focus()

    def action_find_nothing(self) -> None:
        """Show all again."""
        words = self.query_one("#words", Input)
        words.value = ""
        words.remove_class("shown")
        self.query_one(f"#{self._kind()}-table", DataTable).focus()
        self.ask()

    @on(Input.Changed)
    def _other_words(self) -> None:
        self.ask()

    @on(Input.Submitted)
    def _words_are_whole(self) -> None:
        self.query_one(f"#{self._kind()}-table", DataTable).focus()
