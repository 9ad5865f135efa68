//! Flags of `doorman serve`, and their conversion to [`Settings`].

use std::{
    error::Error,
    net::{SocketAddr, ToSocketAddrs},
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use clap::builder::{
    NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser,
};
use doorman_config::{Document, InvalidSource, LastGoodFile, Source, Store};
use doorman_core::ledger::UnmatchedPolicy;
use doorman_openapi::{NodeId, Seconds, ServerId, ServerUrl};
use doorman_server::{
    AuthSettings, CallerLimit, ElectionSettings, EmptyDirectory, Exposure, JwksSource,
    KeyAlgorithm, ParentSettings, Settings, TlsSettings,
    etcd::{EtcdSettings, EtcdUser},
    observe::log::{self, Filter, Format, Guard},
};

use super::failure::Failure;

/// The store in the data directory, used without `--config`.
const DEFAULT_STORE: &str = "doorman.db";
const ELECTION_PREFIX: &str = "doorman";
/// In seconds.
const ELECTION_TTL: u32 = 5;

#[derive(Debug, clap::Args)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    network: NetworkFlags,
    #[command(flatten)]
    document: DocumentFlags,
    #[command(flatten)]
    identity: IdentityFlags,
    #[command(flatten)]
    parent: ParentFlags,
    #[command(flatten)]
    etcd: EtcdFlags,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    auth: AuthFlags,
    #[command(flatten)]
    exposure: ExposureFlags,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    pub(super) log: LogFlags,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
struct NetworkFlags {
    /// Listen address of the API; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7300", value_parser = socket_address)]
    listen: SocketAddr,
    /// Second listen address for /metrics, /livez and /readyz only, without TLS and tokens
    #[arg(long, value_name = "HOST:PORT", value_parser = socket_address)]
    metrics_listen: Option<SocketAddr>,
    /// URL at which clients reach this server; default: the listen address
    #[arg(long, value_name = "URL")]
    advertise: Option<ServerUrl>,
    /// Maximum number of open connections; beyond it, those idle for longest are closed
    ///
    /// A connection takes 1.4 KiB of memory when idle, 10 KiB with TLS, and 17 KiB more during a
    /// request.
    #[arg(long, value_name = "N", default_value_t = Settings::MAX_CONNECTIONS, value_parser = at_least_one::<NonZeroUsize>)]
    max_connections: NonZeroUsize,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Document")]
struct DocumentFlags {
    /// Configuration source: sqlite:PATH, file:PATH or etcd:PREFIX; default:
    /// sqlite:DATA_DIR/doorman.db, with --etcd-endpoints etcd:ELECTION_PREFIX
    ///
    /// sqlite:PATH is a store that is changed over HTTP; a new one starts with the built-in
    /// document. file:PATH is YAML or JSON; changes are loaded without a restart. etcd:PREFIX is
    /// changed over HTTP at any server that shares these keys; new ones start with the document of
    /// DATA_DIR/doorman.db, if there is one.
    #[arg(long, value_name = "SOURCE")]
    config: Option<Source>,
    /// Treatment of resources that no template matches
    #[arg(long, value_name = "POLICY", default_value = "grant", conflicts_with = "parent", value_parser = unmatched())]
    unmatched: UnmatchedPolicy,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Data and identity")]
struct IdentityFlags {
    /// Directory of the files that survive a restart; created if missing
    #[arg(long, value_name = "DIR", default_value = "./doorman-data")]
    data_dir: PathBuf,
    /// Name of this server; default: host name and port
    #[arg(long, value_name = "NAME")]
    server_id: Option<ServerId>,
    /// Name of this server's node; default: the one in the data directory, initially random
    #[arg(long, value_name = "NAME")]
    node: Option<NodeId>,
    /// Skip learning mode on an empty data directory, because no server of this node has run before
    ///
    /// Without it, earlier leases may exist, and new clients wait until those have expired. Has no
    /// effect on a directory that a server has used.
    #[arg(long)]
    first_start: bool,
    /// No earlier lease of this node was longer: 600, 10m, 1h
    ///
    /// Needed where neither the data directory nor etcd says how long earlier leases are, because
    /// both are lost. Learning mode then lasts at least that long. Without it, none is assumed to
    /// be longer than those of the document.
    #[arg(long, value_name = "DURATION", value_parser = longest_lease)]
    longest_lease: Option<Seconds>,
}

fn longest_lease(text: &str) -> Result<Seconds, &'static str> {
    let seconds = match text.parse() {
        Ok(seconds) => seconds,
        Err(_) => humantime::parse_duration(text)
            .map_err(|_| "must be seconds, or a duration such as 90s, 10m or 1h")?
            .as_secs_f64(),
    };
    match Seconds::new(seconds) {
        Ok(longest) if longest > Seconds::ZERO => Ok(longest),
        _ => Err("must be longer than 0 and at most 365d"),
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tree of servers")]
struct ParentFlags {
    /// URLs of all servers of the parent node, which leases capacity to this node
    ///
    /// Only the root of a tree has a document: the node whose servers have no parent.
    #[arg(
        long,
        value_name = "URLS",
        value_delimiter = ',',
        conflicts_with = "config"
    )]
    parent: Vec<ServerUrl>,
    /// File of the token for the parent, with the scope `server`; read again for each request
    #[arg(long, value_name = "FILE", requires = "parent")]
    parent_token_file: Option<PathBuf>,
    /// Certificate authorities (PEM) of the parent, instead of those of the system
    #[arg(long, value_name = "FILE", requires = "parent")]
    parent_ca_file: Option<PathBuf>,
}

/// Name of the source of the rules of a server with a parent.
fn parent_source(parent: Option<&ParentSettings>) -> String {
    let servers = parent.iter().flat_map(|it| &it.servers);
    let servers: Vec<String> = servers.map(ServerUrl::to_string).collect();
    format!("parent {}", servers.join(","))
}

impl ParentFlags {
    fn settings(self) -> Option<ParentSettings> {
        (!self.parent.is_empty()).then_some(ParentSettings {
            servers: self.parent,
            token_file: self.parent_token_file,
            ca_file: self.parent_ca_file,
        })
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Several servers")]
struct EtcdFlags {
    /// URLs of etcd, in which the servers of a node elect their master and share the document
    ///
    /// They are of one cluster. Its JSON gateway must be enabled, as it is by default.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    etcd_endpoints: Vec<ServerUrl>,
    /// Certificate authorities (PEM) of the other servers of the node, instead of those of the
    /// system
    #[arg(long, value_name = "FILE")]
    peer_ca_file: Option<PathBuf>,
    /// User of etcd; requires --etcd-password-file
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    etcd_user: Option<String>,
    /// Password of the user of etcd; the file is read for each authentication
    #[arg(long, value_name = "FILE")]
    etcd_password_file: Option<PathBuf>,
    /// Certificate authorities (PEM) of etcd, instead of those of the system
    #[arg(long, value_name = "FILE")]
    etcd_ca_file: Option<PathBuf>,
    /// Client certificate chain (PEM) for etcd; requires --etcd-key
    ///
    /// When a connection to etcd fails, changes of the TLS files for etcd are loaded.
    #[arg(long, value_name = "FILE")]
    etcd_cert: Option<PathBuf>,
    /// Private key (PEM) of the client certificate for etcd
    #[arg(long, value_name = "FILE")]
    etcd_key: Option<PathBuf>,
    /// Prefix of the keys in etcd: the same for all servers of a node, another for each node
    ///
    /// Without --config, the document has this prefix, too.
    /// [default: doorman]
    #[arg(long, value_name = "PREFIX", value_parser = etcd_prefix)]
    election_prefix: Option<String>,
    /// Seconds without a renewal after which another server becomes the master, from 2 to 60
    /// [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=60))]
    election_ttl: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitFlags {
    /// Maximum number of leases of all resources together
    #[arg(
        long,
        value_name = "N",
        default_value = "1000000",
        value_parser = at_least_one::<NonZeroUsize>
    )]
    max_leases: NonZeroUsize,
    /// Log the total use of each holder that ends (`doorman::usage`)
    #[arg(long)]
    usage_log: bool,
    /// Rate limit per caller, in decisions per second; default: 400000. `off` disables it
    ///
    /// A caller is the subject of a token, or an address without authentication. A request costs
    /// eight decisions, and one more for each of its resources. Operator calls have a separate
    /// limit of at least 400000. By default, callers without a token on this machine are not
    /// limited.
    #[arg(long, value_name = "N|off", value_parser = caller_rate)]
    caller_rate: Option<CallerRate>,
    /// Burst per caller, in decisions; default: two seconds of --caller-rate
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>)]
    caller_burst: Option<NonZeroU32>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct AuthFlags {
    /// Accept tokens signed with the secret in this file (HS256, at least 32 bytes), such as those
    /// of `doorman token`
    ///
    /// Can be repeated, so that one secret can replace another. Changes of the file are loaded
    /// without a restart.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    auth_secret_file: Vec<PathBuf>,
    /// Issuer (`iss`) of tokens signed with a secret
    #[arg(long, value_name = "NAME", default_value = AuthSettings::NAME, value_parser = NonEmptyStringValueParser::new())]
    auth_secret_issuer: String,
    /// Accept tokens that the public key in this file (PEM) verifies
    ///
    /// RSA for RS256, P-256 for ES256, Ed25519 for EdDSA. Can be repeated. Changes of the file are
    /// loaded without a restart.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    auth_key_file: Vec<PathBuf>,
    /// Accept tokens signed with a key of this JSON Web Key Set: a file or an https:// URL
    ///
    /// Changes of a file are loaded without a restart. A URL is fetched every ten minutes, and when
    /// a token has an unknown key.
    #[arg(long, value_name = "FILE|URL")]
    auth_jwks: Option<JwksSource>,
    /// Certificate authorities (PEM) for the URL of --auth-jwks, in addition to those of the system
    #[arg(long, value_name = "FILE", requires = "auth_jwks")]
    auth_jwks_ca: Option<PathBuf>,
    /// Bearer token for the URL of --auth-jwks; the file is read before each request
    #[arg(long, value_name = "FILE", requires = "auth_jwks")]
    auth_jwks_token_file: Option<PathBuf>,
    /// Proxy for the URL of --auth-jwks; default: HTTPS_PROXY and NO_PROXY of the environment
    ///
    /// Pass one with a password by the variable: everybody on the machine can read command lines.
    #[arg(
        long,
        value_name = "URL",
        requires = "auth_jwks",
        hide_env_values = true
    )]
    auth_jwks_proxy: Option<String>,
    /// Issuer (`iss`) of tokens signed with a key
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    auth_issuer: Option<String>,
    /// Audience (`aud`) of tokens
    #[arg(long, value_name = "NAME", default_value = AuthSettings::NAME, value_parser = NonEmptyStringValueParser::new())]
    auth_audience: String,
    /// Accepted algorithms of public keys
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "RS256,ES256,EdDSA"
    )]
    auth_algorithms: Vec<KeyAlgorithm>,
    /// Accepted clock skew between issuer and server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    auth_leeway: u64,
    /// Permissions for tokens of other issuers, such as Kubernetes service accounts (YAML or JSON)
    ///
    /// With it, tokens signed with a key have only the permissions of their grants. Tokens signed
    /// with a secret and without a grant keep the permissions that they claim. Changes of the file
    /// are loaded without a restart.
    #[arg(long, value_name = "FILE")]
    auth_grants: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
struct ExposureFlags {
    /// Listen on other addresses than loopback without authentication
    ///
    /// Everyone who can reach the address may do everything.
    #[arg(long, conflicts_with_all = ["auth_secret_file", "auth_key_file", "auth_jwks"])]
    insecure_no_auth: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// Serve only TLS (1.2 or newer) with this certificate chain (PEM, the server's own first)
    ///
    /// Changes of the TLS files are loaded without a restart. --metrics-listen remains plain HTTP.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate: PEM without a passphrase, in PKCS#8, SEC1 or PKCS#1
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Require client certificates of the authorities in this file (PEM) on every route
    ///
    /// Probes need one, too. Permissions still come from tokens.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogFlags {
    /// Log level or EnvFilter directives, added to info; such as debug or doorman::access=debug
    #[arg(long, value_name = "DIRECTIVES", default_value = "info")]
    log: String,
    /// Format of log lines on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = log_format())]
    pub(super) log_format: Format,
}

/// Parses one of these words, each with its help and its value.
pub(super) fn one_of<const N: usize, T: Copy + Send + Sync + 'static>(
    words: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let values = words.map(|(word, help, _)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(values).try_map(move |given| {
        let known = words.iter().find(|(word, ..)| *word == given);
        known.map(|(.., value)| *value).ok_or("unknown word")
    })
}

fn unmatched() -> impl TypedValueParser<Value = UnmatchedPolicy> {
    one_of([
        ("grant", "Grant what is requested", UnmatchedPolicy::Grant),
        ("refuse", "Grant nothing", UnmatchedPolicy::Refuse),
    ])
}

fn log_format() -> impl TypedValueParser<Value = Format> {
    one_of([
        ("text", "For people", Format::Text),
        ("json", "One JSON object per line", Format::Json),
    ])
}

#[derive(Debug, Clone, Copy)]
enum CallerRate {
    PerSecond(NonZeroU32),
    Off,
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    match text.to_socket_addrs() {
        Ok(mut all) => all.next().ok_or_else(|| format!("{text} has no address")),
        Err(error) => Err(format!(
            "must be HOST:PORT, such as 127.0.0.1:7300: {error}"
        )),
    }
}

pub(super) fn at_least_one<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse()
        .map_err(|_| "must be a whole number of at least 1")
}

fn etcd_prefix(text: &str) -> Result<String, InvalidSource> {
    Source::etcd(text).map(|_| text.to_owned())
}

/// The first document in etcd: that of the store of a server that was alone before.
fn stored_document(path: &Path) -> Result<Document, Failure> {
    if !path.exists() {
        return Ok(Document::built_in());
    }
    let unusable = |error: &dyn Error| {
        Failure::new(format!(
            "cannot read the document in {}, which would be the first one in etcd: repair it, or \
             move it away",
            path.display()
        ))
        .with_cause(error)
    };
    let store = Store::open_to_read(path).map_err(|error| unusable(&error))?;
    match store.newest_document().map_err(|error| unusable(&error))? {
        Some(text) => Document::parse_json(&text).map_err(|error| unusable(&error)),
        None => Ok(Document::built_in()),
    }
}

fn without(given: &str, missing: &str) -> String {
    format!("{given} is given without {missing}: pass both or neither")
}

fn caller_rate(text: &str) -> Result<CallerRate, &'static str> {
    if text == "off" {
        return Ok(CallerRate::Off);
    }
    text.parse()
        .map(CallerRate::PerSecond)
        .map_err(|_| "must be a whole number of at least 1, or off")
}

pub(super) fn exposure(insecure_no_auth: bool) -> Exposure {
    if insecure_no_auth {
        Exposure::Anybody
    } else {
        Exposure::Loopback
    }
}

impl ServeArguments {
    pub(super) fn settings(self) -> Result<Settings, Failure> {
        let Self {
            network, identity, ..
        } = self;
        let tls = self.tls.settings()?;
        let peer_ca_file = self.etcd.peer_ca_file.clone();
        let (etcd, election) = self.etcd.settings()?.unzip();
        let data_dir = identity.data_dir;
        let parent = self.parent.settings();
        let (has_etcd, prefix) = (etcd.is_some(), election.as_ref().map(|it| &*it.prefix));
        let source = match parent {
            Some(_) => None,
            None => Some(source(self.document.config, has_etcd, prefix, &data_dir)?),
        };
        let (active, document_error) = first_document(source.as_ref(), &data_dir)?;
        Ok(Settings {
            listen: network.listen,
            metrics_listen: network.metrics_listen,
            advertise: network.advertise,
            max_connections: network.max_connections,
            document: Arc::new(active),
            document_error,
            config_source: source
                .as_ref()
                .map_or_else(|| parent_source(parent.as_ref()), Source::to_string),
            document_source: source,
            parent,
            unmatched: self.document.unmatched,
            data_dir,
            server_id: identity.server_id,
            node: identity.node,
            empty_directory: if identity.first_start {
                EmptyDirectory::FirstStart
            } else {
                EmptyDirectory::MayBeLost
            },
            longest_lease: identity.longest_lease,
            max_leases: self.limits.max_leases.get(),
            logs_usage: self.limits.usage_log,
            callers: self.limits.callers(),
            auth: self.auth.settings(),
            exposure: exposure(self.exposure.insecure_no_auth),
            tls,
            etcd,
            election,
            peer_ca_file,
        })
    }

    #[cfg(test)]
    pub(super) fn tls_settings(self) -> Result<Option<TlsSettings>, Failure> {
        self.tls.settings()
    }
}

/// Where the document is: as given, or as the other flags suggest.
fn source(
    given: Option<Source>,
    has_etcd: bool,
    prefix: Option<&str>,
    data_dir: &Path,
) -> Result<Source, Failure> {
    match given {
        Some(source @ Source::Sqlite(_)) if has_etcd => Err(Failure::wrong_usage(format!(
            "--config {source} is the store of one server, but --etcd-endpoints is for \
             several: pass --config etcd:PREFIX, which they share, or file:PATH"
        ))),
        Some(source @ Source::Etcd(_)) if !has_etcd => Err(Failure::wrong_usage(without(
            &format!("--config {source}"),
            "--etcd-endpoints",
        ))),
        Some(source) => Ok(source),
        None => Ok(match prefix {
            Some(prefix) => Source::Etcd(prefix.to_owned()),
            None => Source::Sqlite(data_dir.join(DEFAULT_STORE)),
        }),
    }
}

/// The document to start with, and why it is older than the file, if it is.
fn first_document(
    source: Option<&Source>,
    data_dir: &Path,
) -> Result<(Document, Option<String>), Failure> {
    match source {
        None | Some(Source::Sqlite(_)) => Ok((Document::built_in(), None)),
        Some(Source::Etcd(_)) => Ok((stored_document(&data_dir.join(DEFAULT_STORE))?, None)),
        Some(Source::File(file)) => match file.load() {
            Ok(document) => Ok((document, None)),
            // A restart must not turn a rejected edit into an outage.
            Err(error) => match LastGoodFile::in_dir(data_dir).load(file) {
                Some(last_good) => Ok((last_good, Some(error.full_message()))),
                None => Err(Failure::from_document(&error)),
            },
        },
    }
}

impl EtcdFlags {
    /// `None` without endpoints.
    fn settings(self) -> Result<Option<(EtcdSettings, ElectionSettings)>, Failure> {
        let without =
            |given: &str, missing: &str| Err(Failure::wrong_usage(without(given, missing)));
        let user = match (self.etcd_user, self.etcd_password_file) {
            (Some(name), Some(password_file)) => Some(EtcdUser {
                name,
                password_file,
            }),
            (Some(_), None) => return without("--etcd-user", "--etcd-password-file"),
            (None, Some(_)) => return without("--etcd-password-file", "--etcd-user"),
            (None, None) => None,
        };
        let certificate = match (self.etcd_cert, self.etcd_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => return without("--etcd-cert", "--etcd-key"),
            (None, Some(_)) => return without("--etcd-key", "--etcd-cert"),
            (None, None) => None,
        };
        if self.etcd_endpoints.is_empty() {
            let given = [
                ("--etcd-user", user.is_some()),
                ("--etcd-cert", certificate.is_some()),
                ("--etcd-ca-file", self.etcd_ca_file.is_some()),
                ("--peer-ca-file", self.peer_ca_file.is_some()),
                ("--election-prefix", self.election_prefix.is_some()),
                ("--election-ttl", self.election_ttl.is_some()),
            ];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => without(flag, "--etcd-endpoints"),
                None => Ok(None),
            };
        }
        let etcd = EtcdSettings {
            endpoints: self.etcd_endpoints,
            user,
            ca_file: self.etcd_ca_file,
            certificate,
        };
        let election = ElectionSettings {
            prefix: self
                .election_prefix
                .unwrap_or_else(|| ELECTION_PREFIX.to_owned()),
            ttl: self.election_ttl.unwrap_or(ELECTION_TTL),
        };
        Ok(Some((etcd, election)))
    }
}

impl LimitFlags {
    /// The default exempts callers on this machine; either flag includes them.
    fn callers(&self) -> CallerLimit {
        let rate = match (self.caller_rate, self.caller_burst) {
            (None, None) => return CallerLimit::Usual,
            (Some(CallerRate::Off), _) => return CallerLimit::Off,
            (None, Some(_)) => CallerLimit::RATE,
            (Some(CallerRate::PerSecond(rate)), _) => rate,
        };
        let burst = self.caller_burst.unwrap_or(CallerLimit::burst(rate));
        CallerLimit::Of { rate, burst }
    }
}

impl AuthFlags {
    /// `None` without a flag that enables authentication.
    pub(super) fn settings(self) -> Option<AuthSettings> {
        // An issuer or grants without a source of keys is an error, which the server reports.
        let is_enabled = !self.auth_secret_file.is_empty()
            || !self.auth_key_file.is_empty()
            || self.auth_jwks.is_some()
            || self.auth_issuer.is_some()
            || self.auth_grants.is_some();
        is_enabled.then_some(AuthSettings {
            secret_files: self.auth_secret_file,
            secret_issuer: self.auth_secret_issuer,
            key_files: self.auth_key_file,
            jwks: self.auth_jwks,
            jwks_ca: self.auth_jwks_ca,
            jwks_token_file: self.auth_jwks_token_file,
            jwks_proxy: self.auth_jwks_proxy,
            issuer: self.auth_issuer,
            audience: self.auth_audience,
            algorithms: self.auth_algorithms,
            leeway: Duration::from_secs(self.auth_leeway),
            grants: self.auth_grants,
        })
    }
}

impl TlsFlags {
    fn settings(self) -> Result<Option<TlsSettings>, Failure> {
        let (given, missing) = match (self.tls_cert, self.tls_key, self.tls_client_ca) {
            (None, None, None) => return Ok(None),
            (Some(certificate), Some(key), client_authority) => {
                return Ok(Some(TlsSettings {
                    certificate,
                    key,
                    client_authority,
                }));
            }
            (Some(_), None, _) => ("--tls-cert", "--tls-key"),
            (None, Some(_), _) => ("--tls-key", "--tls-cert"),
            (None, None, Some(_)) => ("--tls-client-ca", "--tls-cert and --tls-key"),
        };
        Err(Failure::wrong_usage(without(given, missing)))
    }
}

impl LogFlags {
    pub(super) fn start(&self) -> Result<Guard, Failure> {
        let filter = Filter::parse(&self.log).map_err(|error| {
            Failure::wrong_usage(format!(
                "--log {}: must be directives separated by commas, such as debug or doorman::access=debug: {error}",
                self.log
            ))
        })?;
        Ok(log::start(self.log_format, filter)?)
    }
}
