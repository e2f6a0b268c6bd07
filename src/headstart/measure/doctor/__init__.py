"""Why heads guess worse than they should: the usual mistakes, undone one at a time."""

from headstart.measure.doctor.agreement import Agreement, Examiner
from headstart.measure.doctor.diagnosis import Diagnosis, Trial, diagnose
from headstart.measure.doctor.examination import Report, examine
from headstart.measure.doctor.patient import Patient, open_patient
from headstart.measure.doctor.remedies import Remedy, possible_remedies
from headstart.measure.doctor.texts import FRAMES, WrittenText, write_texts

__all__ = [
    "FRAMES",
    "Agreement",
    "Diagnosis",
    "Examiner",
    "Patient",
    "Remedy",
    "Report",
    "Trial",
    "WrittenText",
    "diagnose",
    "examine",
    "open_patient",
    "possible_remedies",
    "write_texts",
]
