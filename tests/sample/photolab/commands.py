"""`waybill photolab find TEXT`"""

from typing import Annotated

import typer

from waybill.cli.command_context import CommandContext, command


def build_commands() -> typer.Typer:
    app = typer.Typer(name="photolab", help="Rolls and photos.")
    app.callback()(lambda: None)  # a group, although it has one command
    command(app, examples=("waybill photolab find harbour",))(find)
    return app


def find(context: CommandContext, text: Annotated[str, typer.Argument(help="A part of the caption.")]) -> None:
    """Find photos by caption."""
    with context.environment.resources_of("photolab").open_catalogue() as tables:
        rows = tables.query("find", text=text)
    if context.as_json:
        context.print_json(rows)
    else:
        for row in rows:
            context.print_line(f"{row['id']}  {row['caption']}")
