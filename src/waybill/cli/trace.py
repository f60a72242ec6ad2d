"""The command that shows the whole way of a thing, through all applications."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from waybill.cli import terminal
from waybill.cli.command_context import CommandContext, command
from waybill.text_format import format_local_time
from waybill.tracing import open_tracers, render_trace_svg, to_open_lineage, to_prov, to_trace_view, trace_thing
from waybill.tracing.graph import TraceNodeView, TraceView

PANEL = "Records"
TraceFormat = Literal["text", "svg", "openlineage", "prov"]


def register(app: typer.Typer) -> None:
    command(
        app,
        panel=PANEL,
        examples=(
            "waybill trace ark:/99999/fk4abc",
            "waybill trace local-17 --json",
            "waybill trace ark:/99999/fk4abc --format svg > way.svg",
            "waybill trace ark:/99999/fk4abc --format openlineage",
        ),
    )(trace)


def trace(
    context: CommandContext,
    thing: Annotated[
        str,
        typer.Argument(
            metavar="THING", help="An ARK, a local id, a lot, or the id of a deposit, run, job or migration."
        ),
    ],
    format: Annotated[
        TraceFormat, typer.Option("--format", help="text, or the way as a picture or for other tools.")
    ] = "text",
) -> None:
    """Show where a thing came from and what became of it: from deposit to archive, in both directions."""
    shape = "json" if format == "text" else format
    if context.server_url is not None:
        with context.open_server() as client:
            if format == "svg":
                with client.download("/trace", params={"of": thing, "format": "svg"}) as chunks:
                    typer.echo(b"".join(chunks).decode(), nl=False)
                return None
            shown = client.request("GET", "/trace", params={"of": thing, "format": shape})
    else:
        with context.open_store() as store:
            graph = trace_thing(open_tracers(context.environment, store), thing)
        if format == "svg":
            typer.echo(render_trace_svg(graph), nl=False)
            return None
        shown = {"json": to_trace_view, "openlineage": to_open_lineage, "prov": to_prov}[shape](graph)
    if context.as_json or format != "text":
        return context.print_json(shown)
    return _print_trace(context, shown)


def _print_trace(context: CommandContext, view: TraceView) -> None:
    nodes = {node["key"]: node for node in view["nodes"]}
    table = terminal.make_table("", "what", "name", "state", "since", unfolded=("name",))
    for node in view["nodes"]:
        mark = "→" if node["key"] in view["starts"] else ""
        since = format_local_time(node["at"]) if node["at"] else ""
        table.add_row(mark, f"{node['application']} {node['type']}", node["label"], node["state"], since)
    context.out.print(table)
    context.print_line("")
    for edge in view["edges"]:
        context.print_line(f"{_name_of(nodes[edge['source']])}  --{edge['label']}->  {_name_of(nodes[edge['target']])}")
    if not view["whole"]:
        context.print_note("There is more than is shown: trace one of these to go on from there.")


def _name_of(node: TraceNodeView) -> Any:
    return f"{node['type']} {node['label']}"
