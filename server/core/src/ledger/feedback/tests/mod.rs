//! Tests of the law through its interface, with scripted reports.

mod fleet;
mod gauges;
mod growth;
mod operator;
mod properties;
mod replay;
mod target;
mod verdicts;
