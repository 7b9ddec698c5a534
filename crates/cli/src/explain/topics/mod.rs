//! The texts, one table for each group.

mod connection;
mod counters;
mod headers;
mod operations;
mod states;
mod statuses;
mod terms;
mod transports;

use super::topic::Topic;

/// Writes a topic without the names of all fields.
macro_rules! topic {
    ($group:ident $name:literal, $title:literal, [$($alias:literal),* $(,)?],
     $plain:literal, $precise:literal, $clause:literal, [$($see:literal),* $(,)?],
     $example:expr, [$($shows:literal),* $(,)?]) => {
        $crate::explain::topic::Topic {
            name: $name,
            group: $crate::explain::topic::Group::$group,
            title: $title,
            aliases: &[$($alias),*],
            plain: $plain,
            precise: $precise,
            clause: $clause,
            see: &[$($see),*],
            example: $example,
            shows: &[$($shows),*],
        }
    };
}
use topic;

/// All topics.
pub(super) fn all() -> impl Iterator<Item = &'static Topic> {
    [
        operations::TOPICS,
        transports::TOPICS,
        headers::TOPICS,
        statuses::TOPICS,
        states::TOPICS,
        connection::TOPICS,
        counters::TOPICS,
        terms::TOPICS,
    ]
    .into_iter()
    .flatten()
}
