"""What is wrong with a file or a message that cannot be read; no second try will help.

MailError
├── NotMailError           a file that is no archive of mail
├── TooLargeError          a file or a message that is more than anybody should unpack or read
└── UnreadableMailError    a message without anything to read
"""

from headway.systems.consensus.mail.naming import readable


class MailError(ValueError):
    """A file or a message that cannot be read; the message says which, and what to do."""

    def __init__(self, message: str = "") -> None:
        super().__init__(readable(message))  # a letter holds it, and that is text


class NotMailError(MailError):
    """A file that is no archive of mail, or an archive that is broken."""


class TooLargeError(MailError):
    """More bytes than anybody should unpack or read."""


class UnreadableMailError(MailError):
    """A message that has no header and nothing that can be read."""


def located(error: MailError, file: str, start: int, end: int) -> MailError:
    """Give the same error with the place of the message, for whoever looks at it or mends it."""
    return type(error)(f"{file}, bytes {start} to {end}: {error}")
