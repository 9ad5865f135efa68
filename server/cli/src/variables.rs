//! The environment variables of the flags.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
};

use clap::{
    ArgAction, Command,
    builder::FalseyValueParser,
    error::{ContextKind, ContextValue},
};
use doorman_config::suggestion;

const PREFIX: &str = "DOORMAN_";

/// Gives every flag an environment variable that follows from its name: `DOORMAN_DATA_DIR` for
/// `--data-dir`. One with another variable has it already.
pub(super) fn with_variables(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let argument = match argument.get_long() {
            Some(flag) if argument.get_env().is_none() => {
                let name = flag.replace('-', "_").to_uppercase();
                argument.env(format!("DOORMAN_{name}"))
            }
            _ => argument,
        };
        match argument.get_action() {
            // A variable that is empty, 0, false, no or off does not set the flag.
            ArgAction::SetTrue => argument.value_parser(FalseyValueParser::new()),
            _ => argument,
        }
    });
    command.mut_subcommands(with_variables)
}

/// Names the variable in the error of a flag that has its value from there.
pub(super) fn name_variable(
    mut error: clap::Error,
    command: &Command,
    arguments: &[OsString],
) -> clap::Error {
    let Some(ContextValue::String(usage)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let flag = usage.split([' ', '=']).next().unwrap_or_default();
    let mut words = arguments.iter().skip(1);
    let subcommand = words.find_map(|it| command.find_subcommand(it));
    let mut commands = subcommand.into_iter().chain([command]);
    let variable = commands.find_map(|it| variable(it, flag.strip_prefix("--")?));
    let Some((variable, value)) = variable.and_then(|it| Some((it, env::var(it).ok()?))) else {
        return error;
    };
    let has_value = match error.get(ContextKind::InvalidValue) {
        // A list is split at its commas.
        Some(ContextValue::String(invalid)) => value.split(',').any(|it| it == invalid),
        _ => !is_given(flag, arguments),
    };
    if has_value {
        let usage = format!("{usage} ({})", variable.display());
        error.insert(ContextKind::InvalidArg, ContextValue::String(usage));
    }
    error
}

fn is_given(flag: &str, arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().filter_map(|it| it.to_str());
    words.any(|it| it == flag || it.split_once('=').is_some_and(|(name, _)| name == flag))
}

fn variable<'c>(command: &'c Command, flag: &str) -> Option<&'c OsStr> {
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|it| it.get_long() == Some(flag))?;
    argument.get_env()
}

/// Warnings of variables that no flag of `command` and its subcommands has. Those that Kubernetes
/// sets for services whose names begin with `doorman` are left out.
pub(super) fn unknown_variables(
    command: &Command,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let mut known = BTreeSet::new();
    add_variables(&with_variables(command.clone()), &mut known);
    let known: Vec<_> = known
        .iter()
        .filter_map(|it| it.strip_prefix(PREFIX))
        .collect();
    let names = variables.into_iter().filter_map(|(name, _)| {
        let name = name.into_string().ok()?.strip_prefix(PREFIX)?.to_owned();
        let of_services = ["SERVICE_HOST", "SERVICE_PORT", "_TCP", "_UDP"];
        let is_of_kubernetes =
            name.ends_with("PORT") || of_services.iter().any(|it| name.contains(it));
        (!is_of_kubernetes && !known.contains(&name.as_str())).then_some(name)
    });
    let warnings = names.map(|name| match suggestion(&name, &known) {
        Some(meant) => {
            format!("no flag has the variable {PREFIX}{name}; did you mean {PREFIX}{meant}?")
        }
        None => format!("no flag has the variable {PREFIX}{name}"),
    });
    warnings.collect()
}

fn add_variables(command: &Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|it| it.get_env());
    known.extend(variables.filter_map(|it| Some(it.to_str()?.to_owned())));
    for subcommand in command.get_subcommands() {
        add_variables(subcommand, known);
    }
}
