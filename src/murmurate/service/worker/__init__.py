"""The worker: at each deadline it closes an interval, aggregates it, publishes, and purges old readings."""
