"""The application: a route per question, on top of :class:`~dropnode.serve.explorer.Explorer`."""

# No "from __future__ import annotations" here: FastAPI reads the annotations of the routes, and the
# names that they use are those of the function around them, since FastAPI is optional.

import mimetypes
from pathlib import Path
from typing import Annotated, Any

from dropnode import __version__
from dropnode.csv_text import csv_lines
from dropnode.errors import DropnodeError, WorkError
from dropnode.serve import drawing, forms
from dropnode.serve.explorer import Explorer, NotNowError
from dropnode.serve.files import gexf, page_files, snapshot
from dropnode.serve.search import Order, Search

ABOUT = """Predictions of a trained model, why they were made, and labels that people add.

Errors have the form `{"problems": [{"field": ..., "message": ...}]}`. Writes take JSON only."""

LISTED = 100
"""Nodes of a work list."""


def create_app(explorer: Explorer) -> Any:
    """Return the application as FastAPI's; :class:`~dropnode.serve.guard.Guard` goes around it."""
    from fastapi import FastAPI, Query, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response, StreamingResponse

    refused: dict[int | str, dict[str, Any]] = {
        code: {"model": forms.Problems, "description": told}
        for code, told in {
            400: "The request is incomplete.",
            401: "A token is needed.",
            404: "There is no such node.",
            408: "The body came too slowly.",
            409: "Not possible at this moment.",
            413: "The body is too large.",
            415: "A write is not JSON.",
            421: "The Host header does not name this service.",
            422: "Something in the request is invalid; the field is named.",
            503: "The answer took too long.",
        }.items()
    }
    app = FastAPI(
        title="dropnode Explorer",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        responses=refused,
    )

    def problem(status: int, field: str, message: str) -> JSONResponse:
        text = message.encode("utf-8", "replace").decode()
        return JSONResponse({"problems": [{"field": field, "message": text}]}, status)

    @app.exception_handler(RequestValidationError)
    def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without the value itself, which may be huge or no text.
        told = [
            {"field": ".".join(map(str, each["loc"])), "message": each["msg"]}
            for each in error.errors()[:20]
        ]
        for each in told:
            each["field"] = each["field"].encode("utf-8", "replace").decode()
            each["message"] = each["message"].encode("utf-8", "replace").decode()
        return JSONResponse({"problems": told}, 422)

    @app.exception_handler(DropnodeError)
    def _wrong(_: Request, error: DropnodeError) -> JSONResponse:
        if isinstance(error, WorkError):
            return problem(503, "request", "the work failed; see the log of the service")
        return problem(422, "body" if _.method == "POST" else "query", str(error))

    @app.exception_handler(NotNowError)
    def _not_now(_: Request, error: NotNowError) -> JSONResponse:
        return problem(409, "request", str(error))

    @app.exception_handler(OSError)
    def _unstored(_: Request, error: OSError) -> JSONResponse:
        # Without the path.
        return problem(503, "request", f"nothing was stored: {error.strerror}")

    @app.exception_handler(400)
    def _no_text(_: Request, error: Exception) -> JSONResponse:
        return problem(422, "body", "expected JSON in UTF-8")

    @app.exception_handler(404)
    def _absent(_: Request, error: Exception) -> JSONResponse:
        return problem(404, "path", "there is nothing here; see /openapi.json")

    @app.exception_handler(405)
    def _no_method(_: Request, error: Exception) -> JSONResponse:
        return problem(405, "method", "this path does not take this method; see /openapi.json")

    def unknown(name: str) -> JSONResponse:
        return problem(404, "path.id", f"the model knows no node {name[:200]!r}")

    def rows(positions: list[int]) -> list[forms.Row]:
        served, given = explorer.served, explorer.given()
        found = [served.row(at) for at in positions]
        return [forms.Row(**each, now=given.get(each["id"], each["label"])) for each in found]

    @app.get("/health")
    async def health() -> forms.Health:
        """Whether the service answers."""
        return forms.Health("ok", __version__)

    @app.get("/model")
    def model() -> dict[str, Any]:
        """What the model is, from which data and when, versions, measures of held-out labels."""
        return explorer.served.summary() | {
            "has_attributes": bool(explorer.attributes.rows),
            "writable": explorer.workplace is not None,
            "drawn_whole": len(explorer.served.ids) <= drawing.MOST_NODES,
        }

    Class = Annotated[str | None, Query(description="Name of a class.", examples=["Theory"])]
    Share = Annotated[float, Query(ge=0, le=1)]
    Offset = Annotated[int, Query(ge=0, le=10**9)]
    Limit = Annotated[int, Query(ge=1, le=500)]

    @app.get("/nodes")
    def nodes(
        query: Annotated[str, Query(max_length=1000, description="Part of an id.")] = "",
        predicted: Class = None,
        label: Class = None,
        held_out: Class = None,
        least: Share = 0.0,
        most: Share = 1.0,
        order: Order = "table",
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> forms.Page:
        """Nodes by id, classes and confidence, a page at a time.

        `held_out` is the class that a model predicted which was trained without the node's label.
        """
        found = Search(query, predicted, label, held_out, least, most, order).nodes(explorer.served)
        return forms.Page(len(found), offset, rows(found[offset : offset + limit].tolist()))

    @app.get("/nodes/{id:path}")
    def node(id: str, explain: bool = True) -> dict[str, Any]:
        """Everything about a node: probabilities, set, neighbours, attributes, explanation.

        With `explain=false`, without the explanation, which can take long on a large graph.
        """
        at, served = explorer.find(id), explorer.served
        if at is None:
            return unknown(id)  # type: ignore[return-value]
        found = served.node(at) | {
            "now": explorer.given().get(served.ids[at], served.name(served.labels[at])),
            "attributes": explorer.attributes.of(served.ids[at]),
        }
        if explain:
            found["explanation"] = explorer.explained(served, at)
        return found

    @app.post("/predict")
    def predict(new: forms.NewNodes) -> forms.Predicted:
        """Classify nodes that the model has not seen, by their columns and edges."""
        return explorer.predict(new)  # type: ignore[return-value]

    @app.get("/labels")
    def labels() -> forms.JournalPage:
        """Labels that people gave and that the model was not trained on."""
        place = explorer.workplace
        waiting = [forms.JournalEntry(**vars(each)) for each in explorer.waiting().values()]
        count = 0 if place is None else len(place.journal)
        return forms.JournalPage(place is not None, count, waiting)

    @app.post("/labels", status_code=201)
    def add_labels(new: forms.Labels) -> forms.JournalPage:
        """Store labels; they are on the disk when this answers."""
        served = explorer.served
        for at, each in enumerate(new.labels):
            if str(each.id) not in served.position:
                told = f"the model knows no node {str(each.id)[:200]!r}"
                return problem(422, f"body.labels.{at}.id", told)  # type: ignore[return-value]
            if each.label is not None and each.label not in served.classes:
                told = f"unknown class {each.label[:200]!r}; expected one of "
                names = ", ".join(served.classes[:50])
                return problem(422, f"body.labels.{at}.label", told + names)  # type: ignore[return-value]
        explorer.add_labels([(str(each.id), each.label) for each in new.labels])
        return labels()

    @app.get("/retrain")
    def status() -> forms.Status:
        """How far the training of a candidate is, and how a finished one compares."""
        return forms.Status(**explorer.status())

    @app.post("/retrain", status_code=202)
    def retrain() -> forms.Status:
        """Train a candidate with the labels that people gave, in the background."""
        explorer.start()
        return status()

    @app.post("/retrain/keep")
    def keep() -> forms.Status:
        """Put the candidate in the place of the model."""
        explorer.decide(keep=True)
        return status()

    @app.post("/retrain/discard")
    def discard() -> forms.Status:
        """Remove the candidate."""
        explorer.decide(keep=False)
        return status()

    @app.get("/work/suspicious")
    def suspicious() -> list[forms.Row]:
        """Labels that models trained without them contradict, the least believed first."""
        return rows(explorer.served.suspicious()[:LISTED].tolist())

    @app.get("/work/next")
    def next_nodes(limit: Annotated[int, Query(ge=1, le=LISTED)] = 50) -> list[forms.Row]:
        """Nodes whose labels would help most, without those that people have labelled."""
        return rows(explorer.served.next_nodes(explorer.labelled(), limit).tolist())

    @app.get("/graph")
    def graph(
        around: Annotated[str | None, Query(max_length=10_000, description="Id of a node.")] = None,
    ) -> dict[str, Any]:
        """Nodes with their places, and edges: of the whole graph, or around a node."""
        served = explorer.served
        if around is not None:
            at = served.position.get(around)
            return unknown(around) if at is None else drawing.draw_around(served, at)  # type: ignore[return-value]
        if len(served.ids) > drawing.MOST_NODES:
            told = (
                f"the graph has {len(served.ids):,} nodes; name one, and its neighbourhood is drawn"
            )
            return problem(422, "query.around", told)  # type: ignore[return-value]
        return drawing.draw(served, drawing.every(served), explorer.places())

    def download(content: Any, kind: str, name: str) -> Response:
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        if isinstance(content, bytes):
            return Response(content, media_type=kind, headers=headers)
        return StreamingResponse(content, media_type=kind, headers=headers)

    @app.get("/export/predictions.csv", response_class=Response)
    def predictions() -> Response:
        """Predictions of all nodes as CSV."""
        chunks = (csv_lines(rows).encode() for rows in explorer.served.predictions.rows())
        return download(chunks, "text/csv; charset=utf-8", "predictions.csv")

    @app.get("/export/graph.gexf", response_class=Response)
    def graph_file() -> Response:
        """The graph with its predictions, for Gephi."""
        small = len(explorer.served.ids) <= drawing.MOST_NODES
        content = gexf(explorer.served, explorer.places() if small else None)
        return download(content, "application/gexf+xml", "graph.gexf")

    @app.get("/export/snapshot.html", response_class=Response)
    def snapshot_file() -> Response:
        """The page with the model inside, which needs no server."""
        answers: dict[str, Any] = {"/model": model() | {"writable": False}}
        if answers["/model"]["drawn_whole"]:
            answers["/graph"] = graph()
        lists = {"/work/suspicious": suspicious(), "/work/next": next_nodes()}
        answers |= {path: [vars(each) for each in found] for path, found in lists.items()}
        served = explorer.served
        for name in dict.fromkeys(each.id for found in lists.values() for each in found):
            answers[f"/nodes/{name}"] = node(served.ids[served.position[name]])
        return download(snapshot(answers), "text/html; charset=utf-8", "snapshot.html")

    static = page_files()

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(static["index.html"], media_type="text/html; charset=utf-8")

    @app.get("/page/{name:path}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in static:
            return problem(404, "path", "there is no such file")
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        kind = "text/javascript" if Path(name).suffix == ".js" else kind
        return Response(static[name], media_type=f"{kind}; charset=utf-8")

    return app
