"""The application: a route per question, on top of :class:`~dropnode.serve.explorer.Explorer`."""

# No "from __future__ import annotations" here: FastAPI reads the annotations of the routes, and the
# names that they use are those of the function around them, since FastAPI is optional.

import logging
import mimetypes
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from dropnode import __version__
from dropnode.csv_text import csv_lines
from dropnode.errors import DropnodeError, WorkError
from dropnode.serve import drawing, forms
from dropnode.serve.answers import LISTED, NEXT, Answers
from dropnode.serve.explorer import Explorer, NotNowError
from dropnode.serve.files import gexf, page_files
from dropnode.serve.guard import ANSWER_SECONDS
from dropnode.serve.search import Order, Search
from dropnode.serve.workload import BusyError

logger = logging.getLogger("dropnode.serve")

ABOUT = """Predictions of a trained model, why they were made, and labels that people add.

Errors have the form `{"problems": [{"field": ..., "message": ...}]}`. Writes take JSON only."""

EXPLAINING = ANSWER_SECONDS / 2
"""Seconds in which a snapshot begins explanations; the last one has the rest of the time."""


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
            403: "A write comes from a page of another origin.",
            404: "There is no such node.",
            405: "The path does not take this method.",
            408: "The body came too slowly.",
            409: "Not possible at this moment.",
            413: "The body is too large.",
            415: "A write is not JSON.",
            421: "The Host header does not name this service.",
            422: "Something in the request is invalid; the field is named.",
            503: "It took too long, too much is under way, or the work or its storage failed.",
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
    def _wrong(request: Request, error: DropnodeError) -> JSONResponse:
        if isinstance(error, WorkError):
            logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
            return problem(503, "request", "the work failed; see the log of the service")
        return problem(422, "body" if request.method == "POST" else "query", str(error))

    @app.exception_handler(NotNowError)
    def _not_now(_: Request, error: NotNowError) -> JSONResponse:
        return problem(409, "request", str(error))

    @app.exception_handler(BusyError)
    def _busy(_: Request, error: BusyError) -> JSONResponse:
        return problem(503, "request", str(error))

    @app.exception_handler(OSError)
    def _unstored(request: Request, error: OSError) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        # Without the path.
        told = "nothing was stored" if request.method == "POST" else "the answer cannot be made"
        return problem(503, "request", f"{told}: {error.strerror or type(error).__name__}")

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

    @app.get("/health")
    async def health() -> forms.Health:
        """Whether the service answers."""
        return forms.Health("ok", __version__)

    @app.get("/model")
    def model() -> dict[str, Any]:
        """What the model is, from which data and when, versions, measures of held-out labels."""
        return Answers(explorer).model()

    Class = Annotated[str | None, Query(description="Name of a class.", examples=["Theory"])]
    Share = Annotated[float, Query(ge=0, le=1)]
    Offset = Annotated[int, Query(ge=0, le=10**9)]
    Limit = Annotated[int, Query(ge=1, le=500)]
    Listed = Annotated[int, Query(ge=1, le=LISTED)]

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
        answers = Answers(explorer)
        found = Search(query, predicted, label, held_out, least, most, order).nodes(answers.served)
        shown = found[offset : offset + limit].tolist()
        return forms.Page(len(found), offset, answers.rows(shown))

    @app.get("/nodes/{id:path}")
    def node(id: str, explain: bool = True) -> dict[str, Any]:
        """Everything about a node: probabilities, set, neighbours, attributes, explanation.

        With `explain=false`, without the explanation, which can take long on a large graph.
        """
        answers = Answers(explorer)
        at = answers.served.find(id)
        if at is None:
            return unknown(id)  # type: ignore[return-value]
        with explorer.workload.place() if explain else nullcontext():
            return answers.node(at, explain=explain)

    @app.post("/predict")
    def predict(new: forms.NewNodes) -> forms.Predicted:
        """Classify nodes that the model has not seen, by their columns and edges."""
        with explorer.workload.place():
            return explorer.predict(new)  # type: ignore[return-value]

    @app.get("/labels")
    def labels() -> forms.JournalPage:
        """Labels that people gave and that the model was not trained on."""
        place = explorer.workplace
        entries = explorer.waiting(explorer.served).values()
        waiting = [forms.JournalEntry(**vars(each)) for each in entries]
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
    def suspicious(limit: Listed = LISTED) -> list[forms.Row]:
        """Labels that models trained without them contradict, the least believed first."""
        return Answers(explorer).suspicious(limit)

    @app.get("/work/next")
    def next_nodes(limit: Listed = NEXT) -> list[forms.Row]:
        """Nodes whose labels would help most, without those that people have labelled."""
        return Answers(explorer).next_nodes(limit)

    @app.get("/graph")
    def graph(
        around: Annotated[str | None, Query(max_length=10_000, description="Id of a node.")] = None,
    ) -> dict[str, Any]:
        """Nodes with their places, and edges: of the whole graph, or around a node."""
        answers = Answers(explorer)
        served = answers.served
        if around is not None:
            at = served.position.get(around)
            return unknown(around) if at is None else drawing.draw_around(served, at)  # type: ignore[return-value]
        if not answers.drawn_whole:
            told = (
                f"the graph has {len(served.ids):,} nodes; name one, and its neighbourhood is drawn"
            )
            return problem(422, "query.around", told)  # type: ignore[return-value]
        return answers.whole_graph()

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
        answers = Answers(explorer)
        content = gexf(answers.served, explorer.places() if answers.drawn_whole else None)
        return download(content, "application/gexf+xml", "graph.gexf")

    @app.get("/export/snapshot.html", response_class=Response)
    def snapshot_file() -> Response:
        """The page with the model inside, which needs no server."""
        with explorer.workload.place():
            content = Answers(explorer).snapshot(EXPLAINING)
        return download(content, "text/html; charset=utf-8", "snapshot.html")

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
