//! Consumer groups (section 9.9).

use crate::codec::{DecodeError, Reader, Wire, number_newtypes, wire_record, write_list};
use crate::identifier::Identifier;
use crate::name::Name;
use borzoi_types::{GroupId, PartitionId};

/// Generation of a group's assignment: grows with every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupGeneration(pub u64);
number_newtypes!(GroupGeneration(u64));

macro_rules! group_requests {
    ($( $(#[$meta:meta])* $name:ident )+) => {$(
        wire_record! {
            $(#[$meta])*
            #[derive(Clone, PartialEq, Eq, Debug)]
            pub struct $name {
                /// The stream.
                pub stream: Identifier,
                /// The topic.
                pub topic: Identifier,
                /// The group.
                pub group: Identifier,
            }
        }
    )+};
}

group_requests! {
    /// Asks for a group and its members.
    GetConsumerGroup
    /// Deletes a group.
    DeleteConsumerGroup
    /// Joins a group; joining twice succeeds.
    JoinConsumerGroup
    /// Leaves a group.
    LeaveConsumerGroup
    /// Asks which partitions are assigned to the caller.
    SyncConsumerGroup
}

wire_record! {
    /// Asks for all groups of a topic.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GetConsumerGroups {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
    }
}

wire_record! {
    /// Creates a group.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct CreateConsumerGroup {
        /// The stream.
        pub stream: Identifier,
        /// The topic.
        pub topic: Identifier,
        /// Name of the group.
        pub name: Name,
    }
}

wire_record! {
    /// A group without its members.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GroupRecord {
        /// Number within the topic, never reused.
        pub id: GroupId,
        /// Partitions of the topic.
        pub partitions_count: u32,
        /// Members. In [`GroupDetails`] the members that follow are counted instead.
        pub members_count: u32,
        /// Name.
        pub name: Name,
    }
}

wire_record! {
    /// A member of a group.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GroupMember {
        /// Slot within the group, from 0; not the number of a connection.
        pub id: u32,
        /// Partitions assigned to it.
        pub partitions: Vec<PartitionId>,
    }
}

/// A group with its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDetails {
    /// The group.
    pub group: GroupRecord,
    /// Its members.
    pub members: Vec<GroupMember>,
}

impl Wire<'_> for GroupDetails {
    const BYTES_MIN: usize = GroupRecord::BYTES_MIN;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let group = GroupRecord::read(reader)?;
        let members = reader.list("group members", group.members_count)?;
        Ok(Self { group, members })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let group = &self.group;
        let count = u32::try_from(self.members.len()).expect("members of a group are few");
        group.id.write(out);
        group.partitions_count.write(out);
        count.write(out);
        group.name.write(out);
        write_list(&self.members, out);
    }
}

wire_record! {
    /// What is assigned to a member.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Assignment {
        /// Generation of the assignment; clients compare it and nothing else.
        pub generation: GroupGeneration,
        /// The partitions.
        pub partitions: Vec<PartitionId>,
    }
}
