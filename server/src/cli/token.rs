//! `doorman token`: tokens signed with the servers' secret, for deployments without an issuer.

use std::{path::PathBuf, time::Duration};

use clap::builder::NonEmptyStringValueParser;
use doorman_openapi::{Scope, Scopes};
use doorman_server::{AuthSettings, Token};

use super::failure::Failure;

const MAX_TTL: Duration = Duration::from_secs(3_650 * 86_400);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  (umask 077; head -c 32 /dev/urandom | base64 > secret)\n  doorman token --secret-file secret --sub orders --scope capacity --client-id 'orders*' --ttl 30d > orders.token\n  doorman token --secret-file secret --sub alice --scope status:read --resources 'tenant/acme*'"
)]
pub(super) struct TokenArguments {
    /// File with the secret: one of the servers' --auth-secret-file
    #[arg(long, env = "DOORMAN_AUTH_SECRET_FILE", value_name = "FILE")]
    secret_file: PathBuf,
    /// Subject (`sub`): the name of the caller
    #[arg(long, env = "DOORMAN_TOKEN_SUB", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    sub: String,
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

pub(super) fn create(arguments: TokenArguments) -> Result<String, Failure> {
    let token = Token {
        issuer: arguments.issuer,
        audience: arguments.audience,
        subject: arguments.sub,
        scopes: arguments.scope.iter().flat_map(|it| it.iter()).collect(),
        clients: arguments.client_id,
        resources: arguments.resources,
        services: arguments.services,
        max_priority: arguments.max_priority,
        lifetime: arguments.ttl,
    };
    Ok(format!("{}\n", token.sign(&arguments.secret_file)?))
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
    fn unknown_scopes_are_rejected() {
        assert_eq!(
            scopes("capacity status:read").unwrap().to_string(),
            "capacity status:read"
        );
        assert!(scopes("capacty").unwrap_err().contains("templates:write"));
    }
}
