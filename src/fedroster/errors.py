"""Every error and warning that fedroster raises on purpose; their root is :class:`FedrosterError`."""

from fedroster.core.errors import *

__all__ = [
    "ConfigurationError",
    "DataFileError",
    "DownloadError",
    "FairnessWarning",
    "FedrosterError",
    "FeedbackError",
    "FolderError",
    "InUseError",
    "InfeasibleError",
    "InvalidInputError",
    "LogFileError",
    "MissingDataError",
    "MissingDependencyError",
    "PausedError",
    "PluginWarning",
    "RoundNotBegunError",
    "SelectionError",
    "StateFileError",
    "UnknownNameError",
    "WorkerLostError",
]
