"""The certificate of losslessness: is what an engine or a server writes what the model alone would write?"""

from headstart.measure.check.certificate import Certificate, prompts_document, verify_document
from headstart.measure.check.engine_check import EngineCheckConfig, check_engine
from headstart.measure.check.probes import chance_texts
from headstart.measure.check.server_check import ServerCheckConfig, check_against_model, check_against_server

__all__ = [
    "Certificate",
    "EngineCheckConfig",
    "ServerCheckConfig",
    "chance_texts",
    "check_against_model",
    "check_against_server",
    "check_engine",
    "prompts_document",
    "verify_document",
]
