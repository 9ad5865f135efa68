//! `doorman token`: tokens signed with the servers' secret, for deployments without an issuer, and
//! `doorman token inspect`: what a token says, and why a server rejects it.

use std::{
    io::{self, Read},
    num::NonZeroU32,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use clap::builder::NonEmptyStringValueParser;
use doorman_openapi::{Capacity, Scope, Scopes, escape_hidden};
use doorman_server::{AuthSettings, DecodedToken, FailedCheck, Token, Verdict, check_token};
use serde_json::{Map, Value, json};

use super::{
    banner::LAST_SECOND,
    failure::Failure,
    leases::capacity,
    output::{self, JsonFlag},
    serve_flags::AuthFlags,
};

const MAX_TTL: Duration = Duration::from_secs(3_650 * 86_400);

/// A longer text is not accepted by a server.
const MAX_TOKEN_FILE: u64 = 64 * 1024;

/// The bit of a file's mode.
const READABLE_BY_ALL: u32 = 0o004;

/// Claims that are times, in Unix seconds.
const TIMES: [&str; 4] = ["exp", "nbf", "iat", "auth_time"];

#[derive(Debug, clap::Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  (umask 077; head -c 32 /dev/urandom | base64 > secret)\n  doorman token --secret-file secret --sub orders --scope capacity --client-id 'orders*' --ttl 30d > orders.token\n  doorman token --secret-file secret --sub alice --scope status:read --resources 'tenant/acme*'\n  doorman token inspect orders.token --auth-secret-file secret"
)]
pub(super) struct TokenArguments {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    /// File with the secret: one of the servers' --auth-secret-file
    #[arg(
        long,
        env = "DOORMAN_AUTH_SECRET_FILE",
        value_name = "FILE",
        required = true
    )]
    secret_file: Option<PathBuf>,
    /// Subject (`sub`): the name of the caller
    #[arg(long, env = "DOORMAN_TOKEN_SUB", value_name = "NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    sub: Option<String>,
    /// Permissions: capacity, server, templates:read, templates:write, status:read
    #[arg(
        long,
        env = "DOORMAN_TOKEN_SCOPE",
        value_name = "SCOPES",
        required = true,
        value_delimiter = ',',
        value_parser = scopes
    )]
    scope: Vec<Scopes>,
    /// Restrict to clients or nodes that match one of these globs
    #[arg(
        long,
        env = "DOORMAN_TOKEN_CLIENT_ID",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    client_id: Vec<String>,
    /// Restrict to resources that match one of these globs
    #[arg(
        long,
        env = "DOORMAN_TOKEN_RESOURCES",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    resources: Vec<String>,
    /// Restrict to rules of services that match one of these globs
    #[arg(
        long,
        env = "DOORMAN_TOKEN_SERVICES",
        value_name = "GLOBS",
        value_delimiter = ','
    )]
    services: Vec<String>,
    /// Maximum priority of requests; default: unlimited
    #[arg(
        long,
        env = "DOORMAN_TOKEN_MAX_PRIORITY",
        value_name = "N",
        allow_negative_numbers = true
    )]
    max_priority: Option<i32>,
    /// Maximum capacity of templates that it writes, of rates per second; default: unlimited
    #[arg(
        long,
        env = "DOORMAN_TOKEN_MAX_CAPACITY",
        value_name = "N",
        value_parser = capacity
    )]
    max_capacity: Option<Capacity>,
    /// Maximum number of clients that hold leases at once, for all tokens with the same
    /// restrictions together; default: unlimited
    #[arg(long, env = "DOORMAN_TOKEN_MAX_CLIENTS", value_name = "N")]
    max_clients: Option<NonZeroU32>,
    /// Lifetime: seconds, or a duration such as 15m, 12h or 30d
    #[arg(long, env = "DOORMAN_TOKEN_TTL", value_name = "TIME", default_value = "24h", value_parser = ttl)]
    ttl: Duration,
    /// Issuer (`iss`): the servers' --auth-secret-issuer
    #[arg(long, env = "DOORMAN_AUTH_SECRET_ISSUER", value_name = "NAME", default_value = AuthSettings::NAME)]
    issuer: String,
    /// Audience (`aud`): the servers' --auth-audience
    #[arg(long, env = "DOORMAN_AUTH_AUDIENCE", value_name = "NAME", default_value = AuthSettings::NAME)]
    audience: String,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Print what a token says, and whether a server accepts it
    ///
    /// With flags of the server's authentication, the token is checked as the server does. The exit
    /// code is 1 if it is rejected. The signature is never printed.
    Inspect(InspectArguments),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman token inspect orders.token\n  doorman token inspect orders.token --auth-secret-file secret\n  kubectl create token orders --audience doorman | doorman token inspect - --auth-jwks jwks.json --auth-issuer https://kubernetes.default.svc"
)]
struct InspectArguments {
    /// File with a token; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    auth: AuthFlags,
}

/// Rejects unknown scopes, which servers ignore in a token.
fn scopes(text: &str) -> Result<Scopes, String> {
    let scope = |name| {
        Scope::from_name(name).ok_or_else(|| {
            let all: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            format!("unknown scope `{name}`: must be one of {}", all.join(", "))
        })
    };
    text.split_ascii_whitespace().map(scope).collect()
}

fn ttl(text: &str) -> Result<Duration, &'static str> {
    let ttl = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text)
            .map_err(|_| "must be whole seconds, or a duration such as 15m, 12h or 30d")?,
    };
    if ttl < Duration::from_secs(1) {
        Err("must be at least 1 second")
    } else if ttl > MAX_TTL {
        Err("must be at most 3650d")
    } else {
        Ok(ttl)
    }
}

pub(super) async fn run(arguments: TokenArguments) -> Result<String, Failure> {
    match arguments.command {
        Some(TokenCommand::Inspect(arguments)) => inspect(arguments).await,
        None => create(arguments),
    }
}

fn create(arguments: TokenArguments) -> Result<String, Failure> {
    // The parser requires both.
    let (Some(secret_file), Some(subject)) = (arguments.secret_file, arguments.sub) else {
        return Err(Failure::wrong_usage("--secret-file and --sub are required"));
    };
    let token = Token {
        issuer: arguments.issuer,
        audience: arguments.audience,
        subject,
        scopes: arguments.scope.iter().flat_map(|it| it.iter()).collect(),
        clients: arguments.client_id,
        resources: arguments.resources,
        services: arguments.services,
        max_priority: arguments.max_priority,
        max_capacity: arguments.max_capacity,
        max_clients: arguments.max_clients,
        lifetime: arguments.ttl,
    };
    let signed = token.sign(&secret_file)?;
    let mode = std::fs::metadata(&secret_file).map_or(0, |metadata| metadata.mode());
    if mode & READABLE_BY_ALL != 0 {
        let file = secret_file.display();
        let warning = format!("everybody on this machine can read {file}: chmod 600 {file}");
        output::warn(&mut io::stderr(), &warning);
    }
    let leases = [Scope::Capacity, Scope::Server].map(|scope| token.scopes.contains(scope));
    if token.clients.is_empty() && leases.contains(&true) {
        let warning = "without --client-id, the bearer may release the leases of others";
        output::warn(&mut io::stderr(), &warning);
    }
    Ok(signed + "\n")
}

/// Prints the report itself if the token is rejected, because it fails then.
async fn inspect(arguments: InspectArguments) -> Result<String, Failure> {
    let text = read_token(&arguments.file)?;
    let token = text.trim_ascii();
    let decoded = DecodedToken::parse(token);
    let verdict = match arguments.auth.settings() {
        Some(settings) => Some(check_token(token, settings).await?),
        None if decoded.is_none() => Some(Verdict::Rejected(FailedCheck::Malformed)),
        None => None,
    };
    let report = if arguments.output.json {
        let (header, claims) = match decoded {
            Some(token) => (Some(token.header), Some(token.claims)),
            None => (None, None),
        };
        output::pretty_json(&json!({
            "header": header,
            "claims": claims,
            "accepted": verdict.as_ref().map(|it| matches!(it, Verdict::Accepted { .. })),
            "failed_check": verdict.as_ref().and_then(failed_check),
        }))?
    } else {
        let parts = decoded.map(|token| {
            let now = jsonwebtoken::get_current_timestamp();
            let claims = in_words(&token.claims, now);
            format!("header\n{}claims\n{claims}", in_words(&token.header, now))
        });
        parts.unwrap_or_default()
    };
    let line = match &verdict {
        None => "not checked: pass the server's --auth-secret-file, --auth-key-file or --auth-jwks"
            .to_owned(),
        Some(Verdict::Accepted { scopes }) if scopes.is_empty() => {
            "accepted, but without a scope: the server allows nothing".to_owned()
        }
        Some(Verdict::Accepted { scopes }) => format!("accepted; scopes: {scopes}"),
        Some(rejected) => {
            output::print(&report)?;
            let reason = match rejected {
                Verdict::Rejected(check) => check.explanation(),
                _ => "the keys of its issuer cannot be fetched",
            };
            let check = failed_check(rejected).unwrap_or_default();
            return Err(Failure::new(format!("token rejected ({check}): {reason}")));
        }
    };
    Ok(if arguments.output.json {
        report
    } else {
        format!("{report}{line}\n")
    })
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().take(MAX_TOKEN_FILE).read_to_string(&mut text)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => {
            Err(Failure::new(format!("cannot read {}", path.display())).with_cause(&error))
        }
    }
}

fn failed_check(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Rejected(check) => Some(check.name()),
        Verdict::KeysUnavailable => Some("keys unavailable"),
        _ => None,
    }
}

/// One line for each member, with times in words.
fn in_words(members: &Map<String, Value>, now: u64) -> String {
    let names = members.keys().map(|name| escape_hidden(name));
    let width = names.map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let line = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => escape_hidden(text).into_owned(),
            value => escape_hidden(&value.to_string()).into_owned(),
        };
        let shown = escape_hidden(name);
        let time = value.as_f64().filter(|_| TIMES.contains(&name.as_str()));
        let time = time.map_or(String::new(), |time| format!(" ({})", moment(time, now)));
        format!("  {shown:width$}  {text}{time}\n")
    };
    members.iter().map(line).collect()
}

/// A time in Unix seconds, and how far it is from now.
fn moment(time: f64, now: u64) -> String {
    let seconds = time.clamp(0.0, LAST_SECOND as f64) as u64;
    let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds));
    let distance = humantime::format_duration(Duration::from_secs(seconds.abs_diff(now)));
    if seconds >= now {
        format!("{date}, in {distance}")
    } else {
        format!("{date}, {distance} ago")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_is_seconds_or_a_duration() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("15m", 900),
            ("1.5h", 5_400),
            ("24h", 86_400),
            ("30d", 2_592_000),
            ("3650d", 315_360_000),
        ] {
            assert_eq!(ttl(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for invalid in [
            "",
            "0",
            "0h",
            "-1",
            "h",
            "99999999999999999999",
            "3651d",
            "10ms",
        ] {
            assert!(ttl(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn times_are_shown_in_words() {
        let claims =
            json!({"aud": ["a"], "exp": 1_000_000_060, "nbf": 999_999_940, "sub": "a\u{1b}[2J"});
        let Value::Object(claims) = claims else {
            panic!("an object");
        };
        assert_eq!(
            in_words(&claims, 1_000_000_000),
            "  aud  [\"a\"]\n  exp  1000000060 (2001-09-09T01:47:40Z, in 1m)\n  \
             nbf  999999940 (2001-09-09T01:45:40Z, 1m ago)\n  sub  a\\u001b[2J\n"
        );
        for far in [-1.0, 1e300, f64::INFINITY] {
            assert!(moment(far, 5).contains('Z'), "{far}");
        }
    }

    #[test]
    fn unknown_scopes_are_rejected() {
        assert_eq!(
            scopes("capacity status:read").unwrap().to_string(),
            "capacity status:read"
        );
        assert!(scopes("capacty").unwrap_err().contains("templates:write"));
    }
}
