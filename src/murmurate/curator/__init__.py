"""The waist of the house, pure: readings become demand, demand becomes a release."""
