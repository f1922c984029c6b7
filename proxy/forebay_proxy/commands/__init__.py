"""The command `forebay` and what its subcommands print."""
