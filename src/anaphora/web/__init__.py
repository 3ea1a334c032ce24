"""What our two servers share, the studio's and that of `anaphora serve`: sockets, patience with clients, plain refusals."""
