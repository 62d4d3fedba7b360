"""What the head may do at AWS: make, list and end the machines of its own cluster, and nothing else. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from autoscaler.provider import MachineTags

_DESCRIBE = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "pricing:GetProducts",
)
"""What cannot be limited to one cluster: EC2 knows these for all or nothing."""
_MADE = ("instance", "network-interface", "spot-instances-request", "volume")
_USED = (
    *("image", "key-pair", "launch-template", "placement-group", "capacity-reservation"),
    *("network-interface", "security-group", "snapshot", "subnet"),
)
_NAME_SIZE = 64


def role_name(cluster_id: str) -> str:
    """What the head's role and its instance profile are called; the same for the same cluster, and short enough."""
    name = f"clusterctl-{cluster_id}"
    if len(name) <= _NAME_SIZE:
        return name
    digest = hashlib.sha256(cluster_id.encode()).hexdigest()[:12]
    return f"{name[: _NAME_SIZE - len(digest) - 1]}-{digest}"


def trust() -> dict[str, Any]:
    """Who may take the role: machines of EC2."""
    return _policy(
        [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]
    )


def of_head(
    partition: str,
    region: str,
    cluster_id: str,
    passed_roles: Sequence[str] = (),
    spot: bool = False,
    parameters: Sequence[str] = (),
) -> dict[str, Any]:
    """The head's policy.

    Args:
        passed_roles: ARNs of the roles that its workers get.
        spot: it may buy machines on the spot market.
        parameters: of SSM, the account's own, that name images.
    """
    ec2 = f"arn:{partition}:ec2:{region}"
    ours = {"StringEquals": {f"aws:ResourceTag/{MachineTags.CLUSTER_ID}": cluster_id}}
    statements: list[dict[str, Any]] = [
        {"Sid": "Look", "Effect": "Allow", "Action": list(_DESCRIBE), "Resource": "*"},
        {
            "Sid": "MakeOnlyWhatIsTaggedOurs",
            "Effect": "Allow",
            "Action": "ec2:RunInstances",
            "Resource": [f"{ec2}:*:{kind}/*" for kind in _MADE],
            "Condition": {"StringEquals": {f"aws:RequestTag/{MachineTags.CLUSTER_ID}": cluster_id}},
        },
        {
            "Sid": "UseWhatMachinesAreMadeFrom",
            "Effect": "Allow",
            "Action": "ec2:RunInstances",
            "Resource": [f"{ec2}:*:{kind}/*" for kind in _USED] + [f"{ec2}::image/*", f"{ec2}::snapshot/*"],
        },
        {
            "Sid": "TagWhatIsMade",
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": [f"{ec2}:*:{kind}/*" for kind in _MADE],
            "Condition": {"StringEquals": {"ec2:CreateAction": "RunInstances"}},
        },
        {
            "Sid": "EndOnlyOurs",
            "Effect": "Allow",
            "Action": ["ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances"],
            "Resource": f"{ec2}:*:instance/*",
            "Condition": ours,
        },
        {
            "Sid": "FindImages",
            "Effect": "Allow",
            "Action": "ssm:GetParameter",
            "Resource": [
                f"arn:{partition}:ssm:{region}::parameter/aws/service/*",
                *(f"arn:{partition}:ssm:{region}:*:parameter/{name.lstrip('/')}" for name in parameters),
            ],
        },
    ]
    if passed_roles:
        statements.append(
            {
                "Sid": "GiveWorkersTheirRole",
                "Effect": "Allow",
                "Action": "iam:PassRole",
                "Resource": sorted(passed_roles),
                "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            }
        )
    if spot:
        statements.append(
            {
                "Sid": "FirstSpotMachineOfTheAccount",
                "Effect": "Allow",
                "Action": "iam:CreateServiceLinkedRole",
                "Resource": f"arn:{partition}:iam::*:role/aws-service-role/spot.amazonaws.com/*",
            }
        )
    return _policy(statements)


def _policy(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}
