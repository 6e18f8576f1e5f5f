"""The cloud's side: moto's EC2, the fleet of bodies, and the daemon that runs both."""
