"""The command line, in this process."""

from typer.testing import CliRunner

from fedroster import cli


def call(*arguments, code=0):
    """What came of a command, which ends with this code and shows no traceback."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.stderr
    return result


def fails(code, message, *arguments):
    """It ends with this code, this message on stderr, and an empty stdout."""
    result = call(*arguments, code=code)
    assert result.stdout == ""
    assert message in " ".join(result.stderr.replace("│", " ").split()), result.stderr
    return result
