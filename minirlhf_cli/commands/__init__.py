"""One module per command; ``minirlhf_cli.COMMANDS`` lists them."""
