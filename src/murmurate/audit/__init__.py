"""What somebody who hears the prices can find out, measured: adversaries, and lower bounds on epsilon from samples."""
