"""The gRPC service that every ingress offers: `ray.serve.RayServeAPIService`, so that clients of Ray Serve find it.

rpc ListApplications(ListApplicationsRequest) returns (ListApplicationsResponse)   repeated string application_names
rpc Healthz(HealthzRequest) returns (HealthzResponse)                              string message
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "ray.serve"
SERVICE = f"{PACKAGE}.RayServeAPIService"
LIST_APPLICATIONS = f"/{SERVICE}/ListApplications"
HEALTHZ = f"/{SERVICE}/Healthz"


def _messages() -> dict[str, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="runtime/serve/api.proto", package=PACKAGE, syntax="proto3"
    )
    fields = {
        "ListApplicationsRequest": None,
        "ListApplicationsResponse": ("application_names", field.LABEL_REPEATED),
        "HealthzRequest": None,
        "HealthzResponse": ("message", field.LABEL_OPTIONAL),
    }
    for name, only in fields.items():
        message = file.message_type.add(name=name)
        if only is not None:
            message.field.add(name=only[0], number=1, type=field.TYPE_STRING, label=only[1])
    pool = descriptor_pool.DescriptorPool()  # our own: a program may have loaded Ray's file of these names
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in fields
    }


_classes = _messages()
ListApplicationsRequest: Any = _classes["ListApplicationsRequest"]
ListApplicationsResponse: Any = _classes["ListApplicationsResponse"]
HealthzRequest: Any = _classes["HealthzRequest"]
HealthzResponse: Any = _classes["HealthzResponse"]
