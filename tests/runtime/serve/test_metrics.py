"""`serve.metrics`: tags that Serve adds."""

import pickle

import pytest

from runtime.serve import context, metrics


@pytest.fixture
def recorded(monkeypatch):
    """What reaches the process's metrics: (kind, name, value, tags)."""
    from runtime.util import metrics as plain

    found = []

    class Recorder:
        def record(self, kind, name, description, boundaries, value, tags):
            found.append((kind, name, value, dict(tags)))

    monkeypatch.setattr(plain, "metrics", Recorder())
    return found


@pytest.fixture
def _in_replica():
    replica = context.ReplicaID("abc", context.DeploymentID("Model", "app"))
    context.set_replica(context.ReplicaContext(replica, None, context.ReplicaRank(0), 1))
    yield
    context.set_replica(None)


SERVES = {"deployment": "Model", "replica": "abc", "application": "app"}


@pytest.mark.usefixtures("_in_replica")
def test_values_are_tagged(recorded):
    counter = metrics.Counter("c", "text", ("model",))
    counter.set_default_tags({"model": "a"})
    counter.inc()
    counter.inc(2, {"model": "b"})
    metrics.Gauge("g").set(5)
    metrics.Histogram("h", "text", [1, 2]).observe(1.5)
    assert recorded == [
        ("counter", "c", 1.0, {**SERVES, "model": "a"}),
        ("counter", "c", 2.0, {**SERVES, "model": "b"}),
        ("gauge", "g", 5.0, SERVES),
        ("histogram", "h", 1.5, SERVES),
    ]


@pytest.mark.usefixtures("_in_replica")
def test_the_route_is_the_requests(recorded):
    counter = metrics.Counter("c", tag_keys=("route",))
    token = context._serve_request_context.set(context.RequestContext(route="/x"))
    counter.inc()
    counter.inc(tags={"route": "/mine"})
    context._serve_request_context.reset(token)
    assert [tags["route"] for _, _, _, tags in recorded] == ["/x", "/mine"]


@pytest.mark.usefixtures("_in_replica")
def test_reserved_tags_are_refused():
    with pytest.raises(ValueError, match="'replica' is reserved"):
        metrics.Counter("c", tag_keys=("replica",))
    with pytest.raises(ValueError, match="'deployment' is reserved"):
        metrics.Gauge("g").set_default_tags({"deployment": "x"})


@pytest.mark.usefixtures("_in_replica")
def test_a_metric_that_travels_takes_the_tags_of_where_it_is(recorded):
    data = pickle.dumps(metrics.Histogram("h", "text", [1], ("model",)).set_default_tags({"model": "a"}))
    context.set_replica(None)
    pickle.loads(data).observe(1)
    assert recorded == [("histogram", "h", 1.0, {"model": "a"})]


def test_outside_of_replicas_there_are_no_tags(recorded):
    metrics.Counter("c").inc()
    assert recorded == [("counter", "c", 1.0, {})]
