//! The flags that say whose tokens count.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, builder::FalseyValueParser};
use doorman_server::{AuthSettings, Exposure, JwksSource, KeyAlgorithm};

const SOURCES: [&str; 3] = ["auth_secret_file", "auth_key_file", "auth_jwks"];

/// What each caller has to show. Without any of the sources nobody is asked, and the server listens on loopback only.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct AuthArguments {
    /// Take tokens that are signed with the secret in this file (HS256, 32 bytes at least), such as those of `doorman token`. May be
    /// given more than once, so that one secret can be replaced by another; followed as it changes
    #[arg(
        long,
        env = "DOORMAN_AUTH_SECRET_FILE",
        value_name = "FILE",
        value_delimiter = ','
    )]
    auth_secret_file: Vec<PathBuf>,
    /// What tokens that are signed with a secret must name as `iss`
    #[arg(long, env = "DOORMAN_AUTH_SECRET_ISSUER", value_name = "NAME", default_value = AuthSettings::NAME)]
    auth_secret_issuer: String,
    /// Take tokens by the public key in this file: PEM, RSA for RS256, P-256 for ES256, Ed25519 for EdDSA. May be given more than once;
    /// followed as it changes
    #[arg(
        long,
        env = "DOORMAN_AUTH_KEY_FILE",
        value_name = "FILE",
        value_delimiter = ','
    )]
    auth_key_file: Vec<PathBuf>,
    /// Take tokens by the keys of a JSON Web Key Set: a file, followed as it changes, or an https:// address, asked again every ten
    /// minutes, and for keys that are not known
    #[arg(long, env = "DOORMAN_AUTH_JWKS", value_name = "FILE|URL")]
    auth_jwks: Option<JwksSource>,
    /// Believe the address of --auth-jwks by the certificates in this file (PEM), besides those of the system
    #[arg(
        long,
        env = "DOORMAN_AUTH_JWKS_CA",
        value_name = "FILE",
        requires = "auth_jwks"
    )]
    auth_jwks_ca: Option<PathBuf>,
    /// Ask the address of --auth-jwks with the bearer token in this file, read anew each time: Kubernetes replaces those it mounts
    #[arg(
        long,
        env = "DOORMAN_AUTH_JWKS_TOKEN_FILE",
        value_name = "FILE",
        requires = "auth_jwks"
    )]
    auth_jwks_token_file: Option<PathBuf>,
    /// What tokens that are signed with a key must name as `iss`
    #[arg(long, env = "DOORMAN_AUTH_ISSUER", value_name = "NAME")]
    auth_issuer: Option<String>,
    /// What tokens must name as `aud`
    #[arg(long, env = "DOORMAN_AUTH_AUDIENCE", value_name = "NAME", default_value = AuthSettings::NAME)]
    auth_audience: String,
    /// The algorithms of public keys that count
    #[arg(
        long,
        env = "DOORMAN_AUTH_ALGORITHMS",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "RS256,ES256,EdDSA"
    )]
    auth_algorithms: Vec<KeyAlgorithm>,
    /// How many seconds the clocks of issuer and server may be apart
    #[arg(
        long,
        env = "DOORMAN_AUTH_LEEWAY",
        value_name = "SECONDS",
        default_value_t = 5
    )]
    auth_leeway: u64,
    /// What the tokens of an issuer that knows nothing of Doorman let their bearers do, such as those of Kubernetes service accounts:
    /// YAML or JSON, followed as it changes. With it, a token that is signed with a key lets its bearer do only what a grant says for it,
    /// and nothing if none does; tokens that are signed with a secret and have no grant go on speaking for themselves
    #[arg(long, env = "DOORMAN_AUTH_GRANTS", value_name = "FILE")]
    auth_grants: Option<PathBuf>,
    /// Ask nobody for a token, and listen on more than loopback all the same: everybody who can reach the address may do everything
    #[arg(long, env = "DOORMAN_INSECURE_NO_AUTH", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new(), conflicts_with_all = SOURCES)]
    insecure_no_auth: bool,
}

impl AuthArguments {
    /// Whose tokens count, if any are asked for, and who may come where none are.
    pub(super) fn settings(self) -> (Option<AuthSettings>, Exposure) {
        let Self {
            auth_secret_file,
            auth_secret_issuer,
            auth_key_file,
            auth_jwks,
            auth_jwks_ca,
            auth_jwks_token_file,
            auth_issuer,
            auth_audience,
            auth_algorithms,
            auth_leeway,
            auth_grants,
            insecure_no_auth,
        } = self;
        // Whoever says anything of tokens wants them to be asked for; that a source is missing is said at the start.
        let is_asked = !auth_secret_file.is_empty()
            || !auth_key_file.is_empty()
            || auth_jwks.is_some()
            || auth_issuer.is_some()
            || auth_grants.is_some();
        let exposure = if insecure_no_auth {
            Exposure::Anybody
        } else {
            Exposure::Loopback
        };
        let settings = AuthSettings {
            secret_files: auth_secret_file,
            secret_issuer: auth_secret_issuer,
            key_files: auth_key_file,
            jwks: auth_jwks,
            jwks_ca: auth_jwks_ca,
            jwks_token_file: auth_jwks_token_file,
            issuer: auth_issuer,
            audience: auth_audience,
            algorithms: auth_algorithms,
            leeway: Duration::from_secs(auth_leeway),
            grants: auth_grants,
        };
        (is_asked.then_some(settings), exposure)
    }
}
