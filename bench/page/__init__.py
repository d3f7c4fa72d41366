"""One page of all reports in a folder: charts as inline SVG, no script, nothing fetched."""
