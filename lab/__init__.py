"""A rehearsal cloud on this machine: an AWS whose control plane is moto's EC2, and whose instances have a body.

A body is a set of Linux namespaces with its own address, ssh server, metadata service and files. So the real SkyPilot
launches, runs jobs, loses spot instances and takes clusters down, with no cloud account, no network and no root: a lab
started by root drops to an unprivileged user. `lab.cloud` is the door. A lab's processes are `lab.control.daemon` (the
cloud) and, in `lab.bodies`, `body` (makes an instance, then becomes `init`) and `ssh_server`.
"""
