"""The service: PostgreSQL, clock, files, HTTP and MQTT around the publisher.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
