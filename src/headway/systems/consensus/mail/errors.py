"""What is wrong with a file or a message that cannot be read; no second try will help.

MailError
├── NotMailError           a file that is no archive of mail
├── TooLargeError          a file or a message that is more than anybody should unpack or read
└── UnreadableMailError    a message without anything to read
"""


class MailError(ValueError):
    """A file or a message that cannot be read; the message says which, and what to do."""


class NotMailError(MailError):
    """A file that is no archive of mail, or an archive that is broken."""


class TooLargeError(MailError):
    """More bytes than anybody should unpack or read."""


class UnreadableMailError(MailError):
    """A message that has no header and nothing that can be read."""
