"""The command line. A module per command; each imports what it needs when it runs, so that help comes at once."""


def main() -> None:
    """Run the command that the arguments name, and exit: 0 done, 1 failed, 2 wrongly used or configured."""
    from moorage.cli.application import application

    application(prog_name="moorage")
