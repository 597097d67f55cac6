#!/usr/bin/env python3
"""Answers requests of Qdrant's REST API from Qdrant's own engine for devices, qdrant-edge, on a port of this machine.

It is no Qdrant server: collections, aliases and metadata are kept here. What filters match, how vectors, sparse vectors
and quantized vectors are compared and ranked, conditions of upserts, scrolls, counts and facets are Qdrant's own.

    scripts/qdrant_edge.sh          # prints the address for TOOLSCOUT_TEST_QDRANT, and runs until it is ended
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import qdrant_edge as edge

# As the server whose engine this is.
VERSION = "1.16.0"
# Changes of a collection until its segments are optimized, as a server does by itself.
OPTIMIZE_EVERY = 20_000


class Refused(Exception):
    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Collection:
    def __init__(self, folder, config):
        self.config = config
        self.folder = folder
        self.changes = 0
        quantization = config.get("quantization_config", {}).get("scalar")
        if quantization:
            quantization = edge.ScalarQuantizationConfig(
                edge.ScalarType.Int8,
                quantile=quantization.get("quantile"),
                always_ram=quantization.get("always_ram"),
            )
        vectors = {}
        self.is_unnamed = "size" in config.get("vectors", {})
        named = {"": config["vectors"]} if self.is_unnamed else config.get("vectors", {})
        for name, vector in named.items():
            distance = getattr(edge.Distance, vector["distance"])
            vectors[name] = edge.EdgeVectorParams(
                vector["size"], distance, on_disk=vector.get("on_disk")
            )
        # The engine needs a vector, and a server does not.
        names = config.get("sparse_vectors") or ([] if vectors else ["none"])
        sparse = {name: edge.EdgeSparseVectorParams() for name in names}
        self.shard = edge.EdgeShard.create(
            str(folder),
            edge.EdgeConfig(vectors, sparse, quantization_config=quantization or None),
        )

    def changed(self, count):
        self.changes += count
        if self.changes >= OPTIMIZE_EVERY:
            self.changes = 0
            self.shard.optimize()

    def described(self):
        return {
            "status": "green",
            "points_count": self.shard.count(edge.CountRequest(exact=True)),
            "config": {
                "metadata": self.config.get("metadata"),
                "params": {
                    "vectors": self.config.get("vectors", {}),
                    "sparse_vectors": self.config.get("sparse_vectors", {}),
                },
            },
        }


def condition(json):
    if "has_id" in json:
        return edge.HasIdCondition(set(json["has_id"]))
    if "is_empty" in json:
        return edge.IsEmptyCondition(json["is_empty"]["key"])
    if "key" not in json:
        return filter_of(json)
    key = json["key"]
    if "range" in json:
        return edge.FieldCondition(key, range=edge.RangeFloat(**json["range"]))
    (kind, value), = json["match"].items()
    matches = {"value": edge.MatchValue, "any": edge.MatchAny, "text": edge.MatchText}
    if kind not in matches:
        raise Refused(400, f"Format error in JSON body: unknown match {kind}")
    return edge.FieldCondition(key, match=matches[kind](value))


def filter_of(json):
    if not json:
        return edge.Filter()
    unknown = set(json) - {"must", "should", "must_not", "min_should"}
    if unknown:
        raise Refused(400, f"Format error in JSON body: unknown condition {unknown}")
    parts = {}
    for clause in ("must", "should", "must_not"):
        parts[clause] = [condition(one) for one in json.get(clause) or []] or None
    several = json.get("min_should")
    if several:
        conditions = [condition(one) for one in several["conditions"]]
        parts["min_should"] = edge.MinShould(conditions, several["min_count"])
    return edge.Filter(**parts)


def vector_of(json):
    if isinstance(json, dict):
        return edge.SparseVector(json["indices"], json["values"])
    return [float(number) for number in json]


def vector_json(vector):
    if isinstance(vector, dict):
        return {name: vector_json(one) for name, one in vector.items()}
    if isinstance(vector, edge.SparseVector):
        return {"indices": vector.indices, "values": vector.values}
    return vector


def point_json(point, collection):
    vector = vector_json(point.vector)
    if collection.is_unnamed and isinstance(vector, dict):
        vector = vector.get("")
    shown = {"id": point.id if isinstance(point.id, int) else str(point.id)}
    shown["payload"] = point.payload
    shown["vector"] = vector
    return shown


def query_of(json):
    asked = {"limit": json.get("limit", 10), "filter": filter_of(json.get("filter"))}
    asked["with_payload"] = json.get("with_payload", False)
    if "query" in json:
        using = json.get("using")
        asked["query"] = edge.Query.Nearest(vector_of(json["query"]), using=using)
    quantization = json.get("params", {}).get("quantization")
    if quantization:
        quantization = edge.QuantizationSearchParams(rescore=quantization.get("rescore"))
        asked["params"] = edge.SearchParams(quantization=quantization)
    return edge.QueryRequest(**asked)


class State:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qdrant-edge-"))
        self.collections = {}
        self.aliases = {}
        self.made = 0
        self.lock = threading.Lock()

    def handle(self, method, path, body):
        if path == "aliases":
            aliases = self.aliases.items()
            return {"aliases": [{"alias_name": a, "collection_name": c} for a, c in aliases]}
        if path == "collections/aliases":
            for action in body["actions"]:
                if "delete_alias" in action:
                    self.aliases.pop(action["delete_alias"]["alias_name"], None)
                else:
                    new = action["create_alias"]
                    self.named(new["collection_name"])
                    self.aliases[new["alias_name"]] = new["collection_name"]
            return True
        found = re.fullmatch(r"collections/([^/]+)/?(.*)", path)
        if not found:
            raise Refused(404, f"no such path {path}")
        name, action = found.groups()
        if method == "PUT" and not action:
            if name in self.collections:
                raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
            self.made += 1
            self.collections[name] = Collection(self.folder / str(self.made), body)
            return True
        if method == "DELETE" and not action:
            gone = self.collections.pop(name, None)
            self.aliases = {a: c for a, c in self.aliases.items() if c != name}
            if gone:
                gone.shard.close()
                shutil.rmtree(gone.folder, ignore_errors=True)
            return gone is not None
        collection = self.named(self.aliases.get(name, name))
        return self.of_collection(collection, method, action, body)

    def named(self, name):
        if name not in self.collections:
            raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
        return self.collections[name]

    def of_collection(self, collection, method, action, body):
        shard = collection.shard
        if method == "GET" and not action:
            return collection.described()
        if method == "PATCH" and not action:
            collection.config["metadata"] = {**(collection.config.get("metadata") or {}), **body["metadata"]}
            return True
        if action == "index":
            schema = body["field_schema"]
            kind = schema if isinstance(schema, str) else schema["type"]
            kind = getattr(edge.PayloadSchemaType, kind.capitalize())
            shard.update(edge.UpdateOperation.create_field_index(body["field_name"], kind))
            return {"status": "completed"}
        if method == "PUT" and action == "points":
            points = []
            for point in body["points"]:
                vectors = point.get("vector", {})
                if isinstance(vectors, list):
                    vectors = vector_of(vectors)
                else:
                    vectors = {name: vector_of(one) for name, one in vectors.items()}
                points.append(edge.Point(point["id"], vectors, point.get("payload") or {}))
            condition = body.get("update_filter")
            condition = filter_of(condition) if condition else None
            shard.update(edge.UpdateOperation.upsert_points(points, condition))
            collection.changed(len(points))
            return {"status": "completed"}
        if action == "points/delete":
            shard.update(edge.UpdateOperation.delete_points_by_filter(filter_of(body["filter"])))
            return {"status": "completed"}
        if action == "points/count":
            asked = edge.CountRequest(exact=True, filter=filter_of(body.get("filter")))
            return {"count": shard.count(asked)}
        if action == "points/scroll":
            points, following = shard.scroll(
                edge.ScrollRequest(
                    offset=body.get("offset"),
                    limit=body.get("limit", 10),
                    filter=filter_of(body.get("filter")),
                    with_payload=body.get("with_payload", True),
                    with_vector=body.get("with_vector", False),
                )
            )
            if following is not None and not isinstance(following, int):
                following = str(following)
            return {
                "points": [point_json(point, collection) for point in points],
                "next_page_offset": following,
            }
        if action == "points":
            points = shard.retrieve(
                body["ids"], body.get("with_payload", True), body.get("with_vector", False)
            )
            return [point_json(point, collection) for point in points]
        if action == "points/query/batch":
            answers = []
            for search in body["searches"]:
                points = shard.query(query_of(search))
                found = []
                for point in points:
                    shown = point_json(point, collection)
                    shown["score"] = point.score
                    found.append(shown)
                answers.append({"points": found})
            return answers
        if action == "facet":
            asked = edge.FacetRequest(
                body["key"], body.get("limit", 10), True, filter_of(body.get("filter"))
            )
            hits = shard.facet(asked).hits
            return {"hits": [{"value": hit.value, "count": hit.count} for hit in hits]}
        raise Refused(404, f"no such path {action}")


STATE = State()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        path = self.path.split("?")[0].strip("/")
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        status, answer = 200, {"title": "qdrant - vector search engine", "version": VERSION}
        if path:
            try:
                with STATE.lock:
                    result = STATE.handle(self.command, path, json.loads(body or b"{}"))
                answer = {"result": result, "status": "ok", "time": 0.0}
            except Refused as refused:
                status, answer = refused.status, {"status": {"error": str(refused)}}
            except Exception as error:  # what the engine refuses
                status, answer = 400, {"status": {"error": f"Wrong input: {error}"}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"qdrant+http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(STATE.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
