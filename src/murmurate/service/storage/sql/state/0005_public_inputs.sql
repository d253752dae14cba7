-- Public numbers that prices depend on, such as temperatures, in thousandths. They stand in the public log once they are used.
CREATE TABLE curator.public_input (
    series text NOT NULL,
    interval_s bigint NOT NULL,
    interval bigint NOT NULL,
    thousandths bigint NOT NULL,
    PRIMARY KEY (series, interval_s, interval)
);
