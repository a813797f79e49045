"""The words that every room uses: number formats, counting, metrics, tolerances, findings, errors, targets."""
