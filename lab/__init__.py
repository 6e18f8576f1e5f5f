"""A rehearsal cloud on this machine: AWS whose control plane is moto's EC2, and whose instances have a body.

A body is a set of Linux namespaces with its own address, ssh server, metadata service and files, so that the real
SkyPilot launches, runs jobs, loses spot instances and takes clusters down, with no cloud account and no network.
No root needed; root's lab drops to an unprivileged user before any body starts.

`lab.cloud` is the door; processes inside the lab are `daemon` (the cloud), `body` (an instance's first process),
`init`, `ssh_server`. Everything lies in one folder and is gone after `down`.
"""
