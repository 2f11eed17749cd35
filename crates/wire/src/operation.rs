//! The operation byte of requests and replies (wire protocol, section 3.5).
//!
//! Only operations that profile A knows are here: a reply must never carry one that its client does
//! not know. Operations of later profiles are added beside these.

use crate::codec::wire_enum;

wire_enum! {
    /// What a request asks to be done. The numbers are the protocol's and never change.
    pub enum Operation("operation") {
        /// Both kinds of login.
        Register = 1,
        /// A read; the command code stands in the header.
        NonReplicated = 2,
        /// End of a session.
        Logout = 3,
        /// Internal: what a committed topic creation is answered with.
        CreateTopicWithAssignments = 64,
        /// Internal: what a committed partition creation is answered with.
        CreatePartitionsWithAssignments = 65,
        /// Internal: removal of a group member.
        RemoveGroupMember = 66,
        /// Internal: end of a hand-over between group members.
        CompleteGroupHandover = 67,
        /// Internal: what a committed deletion of segments is answered with.
        TruncatePartition = 68,
        /// Creates a stream.
        CreateStream = 128,
        /// Renames a stream.
        UpdateStream = 129,
        /// Deletes a stream.
        DeleteStream = 130,
        /// Deletes all messages of a stream.
        PurgeStream = 131,
        /// Creates a topic.
        CreateTopic = 132,
        /// Changes a topic.
        UpdateTopic = 133,
        /// Deletes a topic.
        DeleteTopic = 134,
        /// Deletes all messages of a topic.
        PurgeTopic = 135,
        /// Adds partitions.
        CreatePartitions = 136,
        /// Removes the highest partitions.
        DeletePartitions = 137,
        /// Removes the oldest closed segments.
        DeleteSegments = 138,
        /// Creates a consumer group.
        CreateConsumerGroup = 139,
        /// Deletes a consumer group.
        DeleteConsumerGroup = 140,
        /// Creates a user.
        CreateUser = 141,
        /// Renames, enables or disables a user.
        UpdateUser = 142,
        /// Deletes a user.
        DeleteUser = 143,
        /// Changes a password.
        ChangePassword = 144,
        /// Replaces the permissions of a user.
        UpdatePermissions = 145,
        /// Creates an access token.
        CreatePersonalAccessToken = 146,
        /// Deletes an access token.
        DeletePersonalAccessToken = 147,
        /// Joins a consumer group.
        JoinConsumerGroup = 148,
        /// Leaves a consumer group.
        LeaveConsumerGroup = 149,
        /// Appends a batch.
        SendMessages = 160,
        /// Stores an offset.
        StoreConsumerOffset = 161,
        /// Forgets a stored offset.
        DeleteConsumerOffset = 162,
    }
}

/// What kind of state an operation touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationClass {
    /// Login and logout.
    Session,
    /// Reads; no log is written.
    Read,
    /// Written by the server itself; a client must not send it.
    Internal,
    /// Written to the metadata log.
    Metadata,
    /// Written to the log of a partition.
    Partition,
}

impl Operation {
    /// The class of the operation. Deletion of segments counts as metadata: its answer and its
    /// duplicate detection follow those rules.
    #[must_use]
    pub const fn class(self) -> OperationClass {
        match self as u8 {
            1 | 3 => OperationClass::Session,
            2 => OperationClass::Read,
            64..=127 => OperationClass::Internal,
            160..=169 => OperationClass::Partition,
            _ => OperationClass::Metadata,
        }
    }

    /// Whether the body of a reply with this operation starts with a result section
    /// (section 3.9). A reply to [`Operation::Register`] does.
    #[must_use]
    pub const fn has_result_section(self) -> bool {
        match self {
            Self::NonReplicated | Self::Logout | Self::SendMessages | Self::DeleteSegments => false,
            Self::StoreConsumerOffset | Self::DeleteConsumerOffset => true,
            _ => true,
        }
    }

    /// The operation that a committed request is answered with: creations of topics and
    /// partitions and deletions of segments are answered with what was committed for them.
    #[must_use]
    pub const fn committed(self) -> Self {
        match self {
            Self::CreateTopic => Self::CreateTopicWithAssignments,
            Self::CreatePartitions => Self::CreatePartitionsWithAssignments,
            Self::DeleteSegments => Self::TruncatePartition,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_one_operation_or_none() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            if let Some(operation) = Operation::from_byte(byte) {
                assert_eq!(operation as u8, byte);
                known += 1;
            }
        }
        assert_eq!(known, Operation::ALL.len());
        assert_eq!(Operation::from_byte(0), None);
    }

    #[test]
    fn committed_operations_carry_a_result_section() {
        for &operation in Operation::ALL {
            if operation.class() == OperationClass::Metadata {
                assert!(operation.committed().has_result_section(), "{operation:?}");
            }
        }
        assert!(Operation::Register.has_result_section());
        assert!(!Operation::SendMessages.has_result_section());
    }
}
