"""Instances: namespaces with an address, ssh, a metadata service and files of their own."""
