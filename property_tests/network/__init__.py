"""The network between the product and its database, as the crash matrix and chaos break it."""
