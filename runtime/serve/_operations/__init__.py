"""Serving from outside of programs: the command line (`cli`), the REST API (`rest`, which the head reaches through the
process in `gateway`), and the client of both (`client`). Imported by nothing else of this package.
"""
