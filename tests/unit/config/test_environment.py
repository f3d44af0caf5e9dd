import pytest

from moorage.config.environment import unknown_variables
from moorage.config.loading import ConfigError, load_settings


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("MOORAGE_SERVER__GRCP", "MOORAGE_SERVER__GRPC"),
        ("MOORAGE_SERVR__GRPC", "MOORAGE_SERVER__GRPC"),
        ("MOORAGE_SERVER_GRPC", "MOORAGE_SERVER__GRPC"),
        ("moorage_repository_path", "MOORAGE_REPOSITORY__PATH"),
        ("MOORAGE_DEVICES__CPU__BUDGT", "MOORAGE_DEVICES__CPU__BUDGET"),
        ("MOORAGE_DEVICES__CUDA_1__RESERVED", "MOORAGE_DEVICES__CUDA_1__RESERVE"),
    ],
)
def test_a_misspelt_variable_names_the_nearest(name: str, nearest: str) -> None:
    assert unknown_variables({name: "x"}) == [
        f"unknown environment variable '{name.upper()}', did you mean '{nearest}'?"
    ]


def test_a_misspelt_variable_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_SERVER__GRCP", "127.0.0.1:0")
    with pytest.raises(ConfigError, match="did you mean 'MOORAGE_SERVER__GRPC'"):
        load_settings(None)


def test_variables_of_others_and_known_ones_are_fine() -> None:
    assert unknown_variables({"PATH": "/bin", "MOORAGE_SERVER__HTTP": "off", "moorage_devices__cpu__budget": "1"}) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MOORAGE_SERVICE_HOST", "10.0.0.1"),
        ("MOORAGE_SERVICE_PORT", "8001"),
        ("MOORAGE_SERVICE_PORT_GRPC", "8001"),
        ("MOORAGE_PORT", "tcp://10.0.0.1:8001"),
        ("MOORAGE_PORT_8001_TCP", "tcp://10.0.0.1:8001"),
        ("MOORAGE_PORT_8001_TCP_ADDR", "10.0.0.1"),
        ("MOORAGE_GRPC_PORT_8001_TCP_PROTO", "tcp"),
    ],
)
def test_what_kubernetes_sets_for_a_service_of_our_name_is_ignored(name: str, value: str) -> None:
    assert unknown_variables({name: value}) == []


def test_a_plain_port_is_a_mistake() -> None:
    assert len(unknown_variables({"MOORAGE_PORT": "8001"})) == 1


def test_the_clients_own_variable_does_not_stop_a_server() -> None:
    assert unknown_variables({"MOORAGE_TARGET": "127.0.0.1:8001"}) == []
