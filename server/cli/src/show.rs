//! `doorman show`: live resources, and the holders of one.

mod tree;

use std::{
    io::{self, IsTerminal},
    num::NonZeroUsize,
    time::Duration,
};

use clap::builder::TypedValueParser;
use doorman_core::rounded;
use doorman_openapi::{
    AlgorithmKind, Capacity, ClientId, ClientLease, ClientLeasePage, Glob, HolderView, LeasePage,
    OutcomeRates, ParentLease, ResourceId, ResourcePage, ResourceView, SafeCapacity, SortBy, paths,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    client::{Client, MAX_PAGE, ServerArguments},
    failure::Failure,
    output::{self, JsonFlag, cell, per_period, variant_name},
    serve_flags::{at_least_one, one_of},
};

/// Rows of a table by default.
const DEFAULT_LIMIT: usize = 50;

const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman show\n  doorman show --prefix tenant/ --sort has --limit 20\n  doorman show --sort unmet\n  doorman show tenant/acme --watch\n  doorman show tenant/acme --client orders-7\n  doorman show tenant/acme --tree\n  doorman show --client orders-7\n  doorman show --client 'orders-*'\n  doorman show --json | jq ."
)]
pub(super) struct ShowArguments {
    /// One resource, with its holders and why each has no more; default: live resources
    resource: Option<ResourceId>,
    /// Show only this holder: of the resource, or all of its leases. With * at the end all holders
    /// whose names start so
    #[arg(
        long,
        env = "DOORMAN_SHOW_CLIENT",
        value_name = "CLIENT|PREFIX*",
        conflicts_with_all = ["prefix", "sort", "limit", "all"]
    )]
    client: Option<ClientId>,
    /// Also show the holders at each node below the server. A node is asked at the address that it
    /// states
    #[arg(
        long,
        env = "DOORMAN_SHOW_TREE",
        requires = "resource",
        conflicts_with_all = ["client", "prefix"]
    )]
    tree: bool,
    /// Hosts of nodes that may get the token: globs, separated by commas. With a token, --tree asks
    /// only these hosts and the servers of --server
    #[arg(
        long,
        env = "DOORMAN_SHOW_TOKEN_HOSTS",
        value_name = "GLOB[,GLOB…]",
        value_delimiter = ',',
        value_parser = host_glob,
        requires = "tree"
    )]
    token_hosts: Vec<Glob>,
    /// Show only resources, or holders of the resource, whose name starts with this
    #[arg(long, env = "DOORMAN_SHOW_PREFIX", value_name = "TEXT")]
    prefix: Option<String>,
    /// Show the largest first; default: by wants if not all are shown
    #[arg(long, env = "DOORMAN_SHOW_SORT", value_name = "ORDER", value_parser = sort())]
    sort: Option<SortBy>,
    /// Maximum number of rows; default: 50, and all with --json
    #[arg(
        long,
        env = "DOORMAN_SHOW_LIMIT",
        value_name = "N",
        value_parser = at_least_one::<NonZeroUsize>,
        conflicts_with = "all"
    )]
    limit: Option<NonZeroUsize>,
    /// Show all rows
    #[arg(long, env = "DOORMAN_SHOW_ALL")]
    all: bool,
    /// Show it again every so many seconds, until interrupted; default: 2
    #[arg(
        long,
        env = "DOORMAN_SHOW_WATCH",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = interval
    )]
    watch: Option<Duration>,
    #[command(flatten)]
    output: JsonFlag,
    #[command(flatten)]
    server: ServerArguments,
}

fn sort() -> impl TypedValueParser<Value = SortBy> {
    one_of([
        (SortBy::Wants.name(), "By demand", SortBy::Wants),
        (SortBy::Has.name(), "By leased capacity", SortBy::Has),
        (
            SortBy::Clients.name(),
            "By number of clients",
            SortBy::Clients,
        ),
        (
            SortBy::Unmet.name(),
            "By demand that is not met",
            SortBy::Unmet,
        ),
        (
            SortBy::Refused.name(),
            "By refused cost: of resources per second, of holders in total",
            SortBy::Refused,
        ),
        (
            SortBy::Overloaded.name(),
            "By requests that the target refused for its load, likewise",
            SortBy::Overloaded,
        ),
        (
            SortBy::HeldBack.name(),
            "By the part of the capacity that feedback holds back; of holders, those that suffer alone",
            SortBy::HeldBack,
        ),
    ])
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|interval| (MIN_INTERVAL..=MAX_INTERVAL).contains(interval))
        .ok_or("must be a number of seconds from 0.1 to 86400")
}

fn host_glob(text: &str) -> Result<Glob, String> {
    if text.contains('/') || text.contains(':') && !text.contains('[') {
        return Err("must be a host such as *.example.com, without scheme and port".to_owned());
    }
    Glob::new(&text.to_ascii_lowercase()).map_err(|error| error.to_string())
}

impl ShowArguments {
    /// The most rows; `None` shows all.
    fn limit(&self) -> Option<usize> {
        match self.limit {
            Some(limit) => Some(limit.get()),
            None if self.all || self.output.json => None,
            None => Some(DEFAULT_LIMIT),
        }
    }
}

pub(super) async fn show(arguments: ShowArguments) -> Result<String, Failure> {
    let client = Client::new(&arguments.server)?;
    let text = read(&client, &arguments).await?;
    match arguments.watch {
        None => Ok(text),
        Some(interval) => watch(&client, &arguments, text, interval).await,
    }
}

/// Prints the state again and again, until nobody reads it.
async fn watch(
    client: &Client,
    arguments: &ShowArguments,
    mut text: String,
    interval: Duration,
) -> Result<String, Failure> {
    while output::print_frame(&text)? {
        tokio::time::sleep(interval).await;
        // A server that restarts is back soon.
        text = match read(client, arguments).await {
            Ok(text) => text,
            Err(failure) => format!("{failure}\n"),
        };
    }
    Ok(String::new())
}

async fn read(client: &Client, arguments: &ShowArguments) -> Result<String, Failure> {
    match (&arguments.resource, &arguments.client) {
        (Some(id), _) if arguments.tree => tree::show(client, arguments, id).await,
        (Some(id), _) => resource(client, arguments, id).await,
        (None, Some(holder)) => client_leases(client, arguments, holder).await,
        (None, None) => resources(client, arguments).await,
    }
}

async fn resources(client: &Client, arguments: &ShowArguments) -> Result<String, Failure> {
    let into_parts = |page: ResourcePage| (page.resources, page.total, page.next_cursor);
    let list = list(client, paths::RESOURCES, arguments, into_parts);
    let mut listed = list.await?;
    listed.sort(arguments, ResourceView::amount);
    if arguments.sort.is_none() && listed.is_complete() {
        let entries = &mut listed.entries;
        entries.sort_by(|a, b| a.resource_id.cmp(&b.resource_id));
    }
    if arguments.output.json {
        return output::pretty_json(&json!({"resources": listed.entries, "total": listed.total}));
    }
    let table = resource_table(&listed.entries);
    if listed.entries.is_empty() {
        return Ok(with_note(table, "no resources", arguments));
    }
    let mut parents = listed.entries.iter().filter_map(|it| it.parent.as_ref());
    let table = match parents.find_map(|it| it.problem.as_ref()) {
        Some(problem) => with_note(table, problem, arguments),
        None => table,
    };
    Ok(match listed.summary("resources", arguments) {
        // Programs that read the lines expect no other text.
        Some(summary) if !io::stdout().is_terminal() && arguments.watch.is_none() => {
            output::note(&mut io::stderr(), &summary);
            table
        }
        Some(summary) => format!("{table}\n{summary}\n"),
        None => table,
    })
}

async fn resource(
    client: &Client,
    arguments: &ShowArguments,
    id: &ResourceId,
) -> Result<String, Failure> {
    let resource: ResourceView = client.get(&resource_path(paths::RESOURCE, id)).await?;
    let holders = holders(client, arguments, id).await?;
    if arguments.output.json {
        return output::pretty_json(
            &json!({"resource": resource, "leases": holders.entries, "total": holders.total}),
        );
    }
    let summary = holders.summary("holders", arguments);
    let summary = summary.map_or(String::new(), |summary| format!("{summary}\n"));
    let text = format!(
        "{}\n{}{summary}\n{}",
        resource_table(std::slice::from_ref(&resource)),
        details(&resource),
        // The details name the period.
        lease_table(
            &["HOLDER"],
            (holders.entries.iter()).map(|view| (vec![holder_name(view)], 1.0, view))
        )
    );
    let absent = arguments.client.as_ref();
    Ok(match absent.filter(|_| holders.entries.is_empty()) {
        Some(client) => {
            let note = match selected(client) {
                Selected::One(_) => {
                    format!("{client} holds no lease of {id}, and does not wait for one")
                }
                Selected::Prefix(_) => {
                    format!("no {client} holds a lease of {id} or waits for one")
                }
            };
            with_note(text, &note, arguments)
        }
        None => text,
    })
}

/// The name of a holder, with its run where the name alone does not tell which it is.
fn holder_name(view: &HolderView) -> String {
    let name = &view.client_id;
    match view.run {
        _ if !view.duplicate_client => name.clone(),
        Some(run) => format!("{name} (duplicate, run {run})"),
        None => format!("{name} (duplicate, no run)"),
    }
}

/// Whom `--client` selects.
enum Selected<'a> {
    One(&'a str),
    Prefix(&'a str),
}

fn selected(client: &ClientId) -> Selected<'_> {
    let name = client.as_str();
    let prefix = name.strip_suffix('*');
    prefix.map_or(Selected::One(name), Selected::Prefix)
}

/// The query for the holders that `--client` selects.
fn selection(client: &ClientId) -> String {
    match selected(client) {
        Selected::One(name) => format!("client_id={}", encoded(name)),
        Selected::Prefix(prefix) => format!("prefix={}", encoded(prefix)),
    }
}

/// The leases of clients, over all resources.
async fn client_leases(
    client: &Client,
    arguments: &ShowArguments,
    holder: &ClientId,
) -> Result<String, Failure> {
    let path = format!("{}?{}", paths::LEASES, selection(holder));
    let into_parts = |page: ClientLeasePage| (page.leases, page.next_cursor);
    let mut leases = client.list(&path, usize::MAX, into_parts).await?;
    leases.sort_by(|a, b| {
        let name = |it: &ClientLease| (it.lease.client_id.clone(), it.resource.resource_id.clone());
        name(a).cmp(&name(b))
    });
    if arguments.output.json {
        return output::pretty_json(&json!({"leases": leases}));
    }
    let table = lease_table(
        &["CLIENT", "RESOURCE"],
        leases.iter().map(|ClientLease { resource, lease }| {
            let names = vec![holder_name(lease), resource.resource_id.to_string()];
            (names, resource.period(), lease)
        }),
    );
    Ok(if leases.is_empty() {
        let note = match selected(holder) {
            Selected::One(name) => format!("{name} holds no lease"),
            Selected::Prefix(_) => format!("no {holder} holds a lease"),
        };
        with_note(table, &note, arguments)
    } else {
        table
    })
}

/// Writes a note to standard error. With `--watch` it becomes a part of the text, because the next
/// state replaces the terminal's content.
fn with_note(text: String, note: &str, arguments: &ShowArguments) -> String {
    if arguments.watch.is_some() {
        format!("{text}{note}\n")
    } else {
        output::note(&mut io::stderr(), note);
        text
    }
}

async fn holders(
    client: &Client,
    arguments: &ShowArguments,
    id: &ResourceId,
) -> Result<Listed<HolderView>, Failure> {
    let path = resource_path(paths::RESOURCE_LEASES, id);
    if let Some(only) = &arguments.client {
        let path = format!("{path}?{}", selection(only));
        if let Selected::One(_) = selected(only) {
            let page: LeasePage = client.get(&path).await?;
            return Ok(Listed::all(page.leases));
        }
        let into_parts = |page: LeasePage| (page.leases, page.next_cursor);
        return Ok(Listed::all(
            client.list(&path, usize::MAX, into_parts).await?,
        ));
    }
    let into_parts = |page: LeasePage| (page.leases, page.total, page.next_cursor);
    let mut listed = list(client, &path, arguments, into_parts).await?;
    listed.sort(arguments, HolderView::amount);
    Ok(listed)
}

/// Entries of a list, and how many the whole list has.
#[derive(Debug)]
struct Listed<T> {
    entries: Vec<T>,
    total: u64,
}

impl<T> Listed<T> {
    fn all(entries: Vec<T>) -> Self {
        Self {
            total: entries.len() as u64,
            entries,
        }
    }

    fn is_complete(&self) -> bool {
        self.total <= self.entries.len() as u64
    }

    /// Sorts what the server has not sorted, and drops the rows beyond the limit.
    fn sort(&mut self, arguments: &ShowArguments, amount: impl Fn(&T, SortBy) -> f64) {
        let limit = arguments.limit().unwrap_or(usize::MAX);
        let is_cut = self.entries.len() > limit;
        if let Some(sort) = arguments.sort.or(is_cut.then_some(SortBy::Wants)) {
            self.entries
                .sort_by(|a, b| amount(b, sort).total_cmp(&amount(a, sort)));
        }
        self.entries.truncate(limit);
    }

    /// A line that says what is not shown.
    fn summary(&self, what: &str, arguments: &ShowArguments) -> Option<String> {
        let sort = arguments.sort.unwrap_or(SortBy::Wants).name();
        let (shown, total) = (self.entries.len(), self.total);
        (!self.is_complete())
            .then(|| format!("{shown} of {total} {what}, the largest by {sort}; --all shows all"))
    }
}

/// Reads a list as far as it is shown. The server sorts one page; more are sorted here.
async fn list<P: DeserializeOwned, T>(
    client: &Client,
    path: &str,
    arguments: &ShowArguments,
    into_parts: impl Fn(P) -> (Vec<T>, Option<u64>, Option<String>),
) -> Result<Listed<T>, Failure> {
    let prefix = match &arguments.prefix {
        Some(prefix) => format!("?prefix={}", encoded(prefix)),
        None => String::new(),
    };
    let path = format!("{path}{prefix}");
    if let Some(limit) = arguments.limit().filter(|limit| *limit <= MAX_PAGE) {
        let separator = if prefix.is_empty() { '?' } else { '&' };
        let sort = arguments.sort.unwrap_or(SortBy::Wants).name();
        let page = format!("{path}{separator}sort={sort}&limit={limit}");
        let (entries, total, _) = into_parts(client.get(&page).await?);
        let total = total.unwrap_or(entries.len() as u64);
        return Ok(Listed { entries, total });
    }
    let entries = client.list(&path, usize::MAX, |page| {
        let (entries, _, cursor) = into_parts(page);
        (entries, cursor)
    });
    Ok(Listed::all(entries.await?))
}

fn resource_path(template: &str, id: &ResourceId) -> String {
    template.replace("{resource_id}", &encoded(id.as_str()))
}

/// Percent-encodes a name for a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn resource_table(resources: &[ResourceView]) -> String {
    let rows = resources.iter().map(|view| {
        let period = view.period();
        // Every lease is the whole capacity, so their sum says nothing.
        let is_shared = matches!(
            view.algorithm,
            Some(AlgorithmKind::Suppression | AlgorithmKind::SharedBucket)
        );
        let has = (!is_shared).then(|| per_period(rounded(view.sum_has), period));
        let algorithm = cell(view.algorithm.as_ref().map(variant_name));
        let rates = view.outcomes.map(|outcomes| outcomes.per_second);
        [
            view.resource_id.to_string(),
            cell(view.capacity.map(|it| per_period(it.to_string(), period))),
            cell(has),
            per_period(rounded(view.sum_wants), period),
            cell(load(view)),
            per_period(rounded(view.unmet), period),
            cell(view.unmet_since.map(output::time)),
            cell(rates.map(|rates| format!("{}/s", rounded(rates.refused)))),
            cell(rates.and_then(|rates| overloaded(&rates))),
            view.clients.to_string(),
            if view.in_learning_mode { "yes" } else { "no" }.to_owned(),
            cell(view.template.as_ref()),
            match view.admission_probability {
                Some(probability) => format!("{algorithm}, admits {}", rounded(probability.get())),
                None => algorithm,
            },
        ]
    });
    output::table(
        [
            "RESOURCE",
            "CAPACITY",
            "HAS",
            "WANTS",
            "LOAD",
            "UNMET",
            "UNMET SINCE",
            "REFUSED",
            "OVERLOADED",
            "CLIENTS",
            "LEARNING",
            "TEMPLATE",
            "ALGORITHM",
        ],
        rows,
    )
}

/// The part of the requests that the target refuses for its load; `None` without requests.
fn overloaded(rates: &OutcomeRates) -> Option<String> {
    let all = rates.ok + rates.overloaded + rates.failed;
    (rounded(all) != "0").then(|| percent(rates.overloaded / all))
}

fn percent(part: f64) -> String {
    format!("{}%", rounded(part * 100.0))
}

/// Whether holders have parts of the capacity.
fn is_divided(view: &ResourceView) -> bool {
    matches!(
        view.algorithm,
        Some(
            AlgorithmKind::ProportionalShare
                | AlgorithmKind::FairShare
                | AlgorithmKind::PriorityShare
        )
    )
}

/// The demand in percent of a capacity that all holders share.
fn load(view: &ResourceView) -> Option<String> {
    let is_shared = !matches!(
        view.algorithm,
        Some(AlgorithmKind::NoAlgorithm | AlgorithmKind::Static)
    );
    let capacity = view.capacity.map(Capacity::get);
    let capacity = capacity.filter(|capacity| is_shared && *capacity > 0.0)?;
    Some(format!("{:.0}%", view.sum_wants / capacity * 100.0))
}

/// Facts that apply to all holders, one line each.
fn details(view: &ResourceView) -> String {
    // Without an answer of the parent it is unlimited, as are those of all new holders.
    let is_unanswered = view.template.is_none()
        && (view.parent.as_ref()).is_some_and(|lease| lease.expires_in.get() == 0.0);
    let safe_capacity = match view.safe_capacity {
        _ if is_unanswered => "unknown before the parent answers".to_owned(),
        SafeCapacity::Unlimited => "unlimited".to_owned(),
        SafeCapacity::AtMost(most) => rounded(most.get()),
    };
    let period = view.period();
    let lines = [
        (period != 1.0).then(|| format!("all amounts are per {period} s")),
        Some(format!(
            "leases of {} s, refreshed every {} s; safe capacity without a lease: {safe_capacity}",
            rounded(view.lease_length.get()),
            rounded(view.refresh_interval.get()),
        )),
        view.parent.as_ref().map(leased_from_parent),
        view.free.map(|free| format!("free: {}", rounded(free))),
        view.fill_level.map(|level| {
            let capacity = match &view.parent {
                Some(_) => "the capacity leased from the parent",
                None => "the capacity",
            };
            format!(
                "demand exceeds {capacity}: each client gets at most {}",
                rounded(level)
            )
        }),
        view.learning_ends_in.map(|left| {
            let unknown = match view.free {
                None if is_divided(view) => ": what is free is unknown until then",
                _ => "",
            };
            format!(
                "learning mode for another {} s{unknown}",
                rounded(left.get())
            )
        }),
        view.balance.map(|balance| {
            format!(
                "balance of the shared token bucket: {}",
                rounded(balance.get())
            )
        }),
        view.admission_probability.map(|probability| {
            format!(
                "admission probability of each request: {}",
                rounded(probability.get())
            )
        }),
        effective_capacity(view),
        Some(outcomes(view)),
        view.warning.clone(),
    ];
    lines
        .into_iter()
        .flatten()
        .map(|line| line + "\n")
        .collect()
}

fn effective_capacity(view: &ResourceView) -> Option<String> {
    let (effective, feedback) = (view.effective?, view.feedback.as_ref()?);
    Some(format!(
        "effective capacity: {} ({} since {}); {}",
        rounded(effective.get()),
        cell(feedback.state.as_ref().map(variant_name)),
        cell(feedback.since.map(output::time)),
        feedback.reason
    ))
}

fn outcomes(view: &ResourceView) -> String {
    match view.outcomes {
        Some(outcomes) => format!("outcomes per second: {}", rates(&outcomes.per_second)),
        None => "outcomes: not reported".to_owned(),
    }
}

fn rates(rates: &OutcomeRates) -> String {
    format!(
        "{} ok, {} overloaded, {} failed; refused cost: {}",
        rounded(rates.ok),
        rounded(rates.overloaded),
        rounded(rates.failed),
        rounded(rates.refused)
    )
}

fn leased_from_parent(lease: &ParentLease) -> String {
    let limit = lease.limit.map_or(String::new(), |limit| {
        format!(" of {}, the capacity of the tree", rounded(limit.get()))
    });
    let older = lease.older.map_or(String::new(), |older| {
        format!("; an older lease covers {}", rounded(older.get()))
    });
    let problem = lease.problem.as_ref();
    let problem = problem.map_or(String::new(), |problem| format!("; {problem}"));
    format!(
        "leased from the parent: {}{limit}, for {} s{older}{problem}",
        rounded(lease.has.get()),
        rounded(lease.expires_in.get()),
    )
}

/// The priorities of a holder, the highest first.
fn priorities(view: &HolderView) -> String {
    if view.bands.is_empty() {
        return view.priority.to_string();
    }
    let all = view.bands.iter().map(|band| band.priority.to_string());
    all.collect::<Vec<_>>().join(",")
}

/// A table of leases, each with its names and the period of its amounts.
fn lease_table<'v>(
    names: &[&'static str],
    leases: impl Iterator<Item = (Vec<String>, f64, &'v HolderView)>,
) -> String {
    let rows = leases.map(|(mut row, period, view)| {
        let amount = |amount: f64| per_period(rounded(amount), period);
        row.extend([
            variant_name(&view.kind),
            priorities(view),
            amount(view.wants.get()),
            amount(view.share.get()),
            amount(view.has.get()),
            amount(view.booked),
            amount(view.outstanding.get()),
            cell(view.used.map(|used| rounded(used.get()))),
            cell(
                view.outcomes
                    .map(|outcomes| rounded(outcomes.refused.get())),
            ),
            cell(view.refused_since.map(output::time)),
            cell(view.overloaded_share.map(|share| percent(share.get()))),
            cell(view.refreshed_ago.map(|ago| rounded(ago.get()))),
            rounded(view.expires_in.get()),
            cell(view.held_back_by.as_ref().map(variant_name)),
            view.why.clone(),
        ]);
        row
    });
    let headings = [
        "KIND",
        "PRIORITY",
        "WANTS",
        "SHARE",
        "HAS",
        "BOOKED",
        "OUTSTANDING",
        "USED",
        "REFUSED",
        "REFUSED SINCE",
        "OVERLOADED",
        "REFRESHED",
        "SECONDS",
        "HELD BACK BY",
        "WHY",
    ];
    output::table([names, &headings].concat(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "NaN", "inf", "1e300", "2s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn slashes_in_resource_ids_are_encoded() {
        let id = ResourceId::new("tenant/acme").unwrap();
        assert_eq!(
            resource_path(paths::RESOURCE_LEASES, &id),
            "/v1/resources/tenant%2Facme/leases"
        );
    }
}
